-- Slot of a connection: the hash of Sheaf's tables, `lookup3` by Bob Jenkins, over address and port of the client.
local function rotate(x, k)
    return ((x << k) | (x >> (32 - k))) & 0xffffffff
end

local function jhash(words, seed)
    local a = (0xdeadbeef + 4 * #words + seed) & 0xffffffff
    local b, c, at = a, a, 1
    while #words - at >= 3 do
        a = (a + words[at]) & 0xffffffff
        b = (b + words[at + 1]) & 0xffffffff
        c = (c + words[at + 2]) & 0xffffffff
        a = ((a - c) & 0xffffffff) ~ rotate(c, 4)
        c = (c + b) & 0xffffffff
        b = ((b - a) & 0xffffffff) ~ rotate(a, 6)
        a = (a + c) & 0xffffffff
        c = ((c - b) & 0xffffffff) ~ rotate(b, 8)
        b = (b + a) & 0xffffffff
        a = ((a - c) & 0xffffffff) ~ rotate(c, 16)
        c = (c + b) & 0xffffffff
        b = ((b - a) & 0xffffffff) ~ rotate(a, 19)
        a = (a + c) & 0xffffffff
        c = ((c - b) & 0xffffffff) ~ rotate(b, 4)
        b = (b + a) & 0xffffffff
        at = at + 3
    end
    a = (a + (words[at] or 0)) & 0xffffffff
    b = (b + (words[at + 1] or 0)) & 0xffffffff
    c = (c + (words[at + 2] or 0)) & 0xffffffff
    c = ((c ~ b) - rotate(b, 14)) & 0xffffffff
    a = ((a ~ c) - rotate(c, 11)) & 0xffffffff
    b = ((b ~ a) - rotate(a, 25)) & 0xffffffff
    c = ((c ~ b) - rotate(b, 16)) & 0xffffffff
    a = ((a ~ c) - rotate(c, 4)) & 0xffffffff
    b = ((b ~ a) - rotate(a, 14)) & 0xffffffff
    return ((c ~ b) - rotate(b, 24)) & 0xffffffff
end

-- Input: address in hexadecimal digits, a colon, port.
core.register_converters("sheaf_slot", function(key, seed, slots)
    local address, port = key:match("^(%x+):(%d+)$")
    if not address then return "" end
    local bytes = address:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end)
    -- Four bytes a word, as the kernel's registers hold them; a port is two bytes and two zeros.
    bytes = bytes .. string.pack(">I2", tonumber(port)) .. "\0\0"
    local words = {}
    for at = 1, #bytes, 4 do words[#words + 1] = string.unpack("<I4", bytes, at) end
    return tostring((jhash(words, tonumber(seed)) * tonumber(slots)) >> 32)
end)
