#include "coordinator/http/careful_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace longhaul::coordinator {
namespace {

// Waits until the socket is ready. False: the time is over, or the connection broke.
bool Await(int fd, short events, absl::Duration limit) {
  const Deadline deadline = Deadline::After(limit);
  while (true) {
    pollfd wanted{.fd = fd, .events = events, .revents = 0};
    const auto left = static_cast<int>(absl::ToInt64Milliseconds(deadline.Remaining()));
    const int ready = ::poll(&wanted, 1, left);
    if (ready > 0) return (wanted.revents & events) != 0;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// The connection during one request.
class RequestStream : public httplib::Stream {
 public:
  RequestStream(int fd, absl::Duration read_limit, absl::Duration write_limit)
      : fd_(fd), read_limit_(read_limit), write_limit_(write_limit) {}

  bool is_readable() const override {
    return begin_ < end_ || Await(fd_, POLLIN, std::min(read_limit_, deadline_.Remaining()));
  }
  bool is_writable() const override { return Await(fd_, POLLOUT, write_limit_); }

  ssize_t read(char* out, size_t size) override {
    // httplib reads lines a byte at a time.
    if (begin_ == end_ && !Fill()) return -1;
    const size_t bytes = std::min(size, end_ - begin_);
    std::copy_n(buffer_ + begin_, bytes, out);
    begin_ += bytes;
    return static_cast<ssize_t>(bytes);
  }
  ssize_t write(const char* data, size_t size) override {
    if (!is_writable()) return -1;
    return ::send(fd_, data, size, MSG_NOSIGNAL);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    SetAddress(&::getpeername, &ip, &port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    SetAddress(&::getsockname, &ip, &port);
  }
  socket_t socket() const override { return fd_; }

  // Whether the caller has already said something of its next request.
  bool has_more() const { return begin_ < end_; }
  // Begins with the next request.
  void Restart() {
    received_ = end_ - begin_;
    deadline_ = Deadline::After(CarefulServer::kRequestLimit);
  }

 private:
  bool Fill() {
    if (received_ >= CarefulServer::kMostRequestBytes || !is_readable()) return false;
    const size_t room = std::min(sizeof(buffer_), CarefulServer::kMostRequestBytes - received_);
    ssize_t got = 0;
    do {
      got = ::recv(fd_, buffer_, room, 0);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    begin_ = 0;
    end_ = static_cast<size_t>(got);
    received_ += end_;
    return true;
  }

  void SetAddress(int (*find)(int, sockaddr*, socklen_t*), std::string* ip, int* port) const {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    char text[INET6_ADDRSTRLEN] = "";
    if (find(fd_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return;
    if (address.ss_family == AF_INET) {
      const auto& four = reinterpret_cast<const sockaddr_in&>(address);
      ::inet_ntop(AF_INET, &four.sin_addr, text, sizeof(text));
      *port = ntohs(four.sin_port);
    } else if (address.ss_family == AF_INET6) {
      const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
      ::inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text));
      *port = ntohs(six.sin6_port);
    }
    *ip = text;
  }

  const int fd_;
  const absl::Duration read_limit_, write_limit_;
  Deadline deadline_ = Deadline::After(CarefulServer::kRequestLimit);
  size_t received_ = 0;  // bytes of this request
  char buffer_[4096];    // received and not yet read: [begin_, end_)
  size_t begin_ = 0, end_ = 0;
};

}  // namespace

bool CarefulServer::process_and_close_socket(socket_t socket) {
  const UniqueFd connection(socket);
  RequestStream stream(socket, absl::Seconds(read_timeout_sec_), absl::Seconds(write_timeout_sec_));
  bool served = false;
  for (size_t left = keep_alive_max_count_; left > 0 && svr_sock_ != INVALID_SOCKET; --left) {
    // A short limit, because the end of the server waits for connections that do nothing.
    if (!stream.has_more() && !Await(socket, POLLIN, absl::Seconds(keep_alive_timeout_sec_))) break;
    stream.Restart();
    bool closed = false;
    served = process_request(stream, /*close_connection=*/left == 1, closed, nullptr);
    if (!served || closed) break;
  }
  ::shutdown(socket, SHUT_RDWR);
  return served;
}

}  // namespace longhaul::coordinator
