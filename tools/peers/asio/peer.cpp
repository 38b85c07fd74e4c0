// asio: async_write of length and payload, async_read of each into memory of the caller; one thread.

#include "../common/peer.h"
#include <array>
#include <asio.hpp>
#include <chrono>
#include <memory>
#include <vector>

using asio::ip::tcp;

static tcp::endpoint endpoint(const char *text) {
    std::string address(text);
    size_t colon = address.rfind(':');
    if (colon == std::string::npos) peer_die("\"%s\" is no IP:PORT", text);
    std::string host = address.substr(0, colon);
    if (!host.empty() && host.front() == '[') host = host.substr(1, host.size() - 2);
    return tcp::endpoint(asio::ip::make_address(host), (unsigned short)peer_number("a port", address.c_str() + colon + 1));
}

// One connection of a sender: a message after the other, as the poster's benchmark has it.
struct outgoing {
    tcp::socket socket;
    uint64_t length;
    explicit outgoing(tcp::socket &&with) : socket(std::move(with)), length(peer.bytes) {}
    void next() {
        if (peer_stopping()) {
            socket.shutdown(tcp::socket::shutdown_send);
            return;
        }
        std::array<asio::const_buffer, 2> pieces = {asio::buffer(&length, sizeof length), asio::buffer(peer_slot(), peer.bytes)};
        peer_sent();
        asio::async_write(socket, pieces, [this](const asio::error_code &error, size_t) {
            if (error) peer_die("cannot send: %s", error.message().c_str());
            next();
        });
    }
};

// One connection of a receiver. Memory is walked from end to end, so that it is cold.
struct incoming {
    tcp::socket socket;
    uint64_t length = 0;
    std::vector<unsigned char> memory;
    size_t at = 0;
    explicit incoming(tcp::socket &&with) : socket(std::move(with)), memory(std::max(peer.memory_bytes / peer.peers, peer.bytes)) {}
    void next() {
        asio::async_read(socket, asio::buffer(&length, sizeof length), [this](const asio::error_code &error, size_t) {
            if (error == asio::error::eof) return;
            if (error) peer_die("cannot receive: %s", error.message().c_str());
            if (length != peer.bytes) peer_die("a message of %zu bytes came", (size_t)length);
            if (at + peer.bytes > memory.size()) at = 0;
            asio::async_read(socket, asio::buffer(memory.data() + at, peer.bytes), [this](const asio::error_code &error, size_t bytes) {
                if (error) peer_die("cannot receive: %s", error.message().c_str());
                peer_received(memory.data() + at, bytes);
                at += bytes;
                next();
            });
        });
    }
};

template <typename T> static void serve(asio::io_context &context, std::vector<tcp::socket> &sockets) {
    std::vector<std::unique_ptr<T>> all;
    for (auto &socket : sockets) all.emplace_back(new T(std::move(socket)));
    for (auto &one : all) one->next();
    context.run();
}

int main(int argc, char **argv) {
    peer_start("asio_peer", argc, argv);
    asio::io_context context(1);
    std::vector<tcp::socket> sockets;
    if (peer.bind[0]) {
        tcp::acceptor acceptor(context, endpoint(peer.bind));
        acceptor.listen(1024);
        peer_ready();
        while (sockets.size() < peer.peers) sockets.push_back(acceptor.accept());
    } else {
        for (size_t i = 0; i < peer.connect_count; i++) {
            sockets.emplace_back(context);
            sockets.back().connect(endpoint(peer.connect[i]));
        }
        peer_ready();
    }
    for (auto &socket : sockets) {
        socket.set_option(tcp::no_delay(true));
#ifdef TCP_CONGESTION
        if (peer.congestion) setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_CONGESTION, peer.congestion, strlen(peer.congestion));
#endif
    }
    char congestion[16] = "";
#ifdef TCP_CONGESTION
    socklen_t size = sizeof congestion - 1;
    if (!sockets.empty()) getsockopt(sockets[0].native_handle(), IPPROTO_TCP, TCP_CONGESTION, congestion, &size);
#endif
    if (peer.sends) {
        peer_wait_go();
        serve<outgoing>(context, sockets);
    } else {
        serve<incoming>(context, sockets);
    }
    char version[64];
    snprintf(version, sizeof version, "asio %d.%d.%d", ASIO_VERSION / 100000, ASIO_VERSION / 100 % 1000, ASIO_VERSION % 100);
    peer_finish(version, congestion[0] ? congestion : NULL);
    return 0;
}
