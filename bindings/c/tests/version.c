/* Prints the versions of the library. */
#include <sheaf.h>
#include <stdio.h>

int main(void) {
    printf("%s %u\n", sheaf_version(), (unsigned)sheaf_abi());
    return 0;
}
