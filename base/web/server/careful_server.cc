#include "base/web/server/careful_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <semaphore>
#include <string>
#include <utility>

#include "base/address.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "base/web/server/tls_context.h"

namespace longhaul::web {
namespace {

// Short, because an end waits for connections that do nothing.
constexpr time_t kIdleSeconds = 1;
constexpr time_t kReadSeconds = 1;
constexpr time_t kWriteSeconds = 5;

// If all threads are busy and `waiting` connections wait, enqueue blocks. Further connections then
// stay in the kernel's queue and take none of the program's descriptors.
class BoundedThreads : public httplib::TaskQueue {
 public:
  BoundedThreads(size_t threads, size_t waiting)
      : room_(static_cast<ptrdiff_t>(threads + waiting)), threads_(threads) {}
  void enqueue(std::function<void()> task) override {
    room_.acquire();
    const auto run = [this, task = std::move(task)] {
      ::pthread_setname_np(::pthread_self(), "web");  // for those who look at threads' times
      task();
      room_.release();
    };
    // A task that still waits at shutdown runs as well, to close its connection.
    threads_->Add(std::to_string(next_++), run, run);
  }
  // Runs waiting tasks on this thread, then waits for running ones.
  void shutdown() override { threads_.reset(); }

 private:
  std::counting_semaphore<> room_;
  uint64_t next_ = 0;  // a key of its own for each task, so that none waits for another
  std::optional<WorkThreads> threads_;
};

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

// The connection during one request. `ssl`: null without TLS; else the socket does not block, and
// the object must outlive this one.
class RequestStream : public httplib::Stream {
 public:
  RequestStream(int fd, SSL* ssl, absl::Duration read_limit, absl::Duration write_limit)
      : fd_(fd), ssl_(ssl), read_limit_(read_limit), write_limit_(write_limit) {}

  // Agrees on keys. False: the caller wants no TLS, or is too slow.
  bool Accept() {
    return ssl_ == nullptr || Tls(deadline_, [this] { return SSL_accept(ssl_); }) == 1;
  }

  bool is_readable() const override {
    if (begin_ < end_ || (ssl_ != nullptr && SSL_pending(ssl_) > 0)) return true;
    return Await(fd_, POLLIN, std::min(read_limit_, deadline_.Remaining()));
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
    if (ssl_ == nullptr) return ::send(fd_, data, size, MSG_NOSIGNAL);
    const int bytes = static_cast<int>(std::min<size_t>(size, 1 << 20));
    return Tls(Deadline::After(write_limit_), [&] { return SSL_write(ssl_, data, bytes); });
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    SetAddress(&::getpeername, &ip, &port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    SetAddress(&::getsockname, &ip, &port);
  }
  socket_t socket() const override { return fd_; }

  // Whether the caller has already said something of its next request.
  bool has_more() const { return begin_ < end_ || (ssl_ != nullptr && SSL_pending(ssl_) > 0); }
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
    if (ssl_ != nullptr) {
      const Deadline limit = Deadline::After(std::min(read_limit_, deadline_.Remaining()));
      got = Tls(limit, [&] { return SSL_read(ssl_, buffer_, static_cast<int>(room)); });
    } else {
      do {
        got = ::recv(fd_, buffer_, room, 0);
      } while (got < 0 && errno == EINTR);
    }
    if (got <= 0) return false;
    begin_ = 0;
    end_ = static_cast<size_t>(got);
    received_ += end_;
    return true;
  }

  // Repeats a call of OpenSSL until it is done. 0 or less: it failed, or the time is over.
  template <class Call>
  static int Tls(SSL* ssl, int fd, const Deadline& limit, const Call& call) {
    while (true) {
      // What other connections of this thread left there would be taken for this one's error.
      ERR_clear_error();
      const int done = call();
      if (done > 0) return done;
      const int why = SSL_get_error(ssl, done);
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return -1;
      if (!Await(fd, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, limit.Remaining())) return -1;
    }
  }
  template <class Call>
  int Tls(const Deadline& limit, const Call& call) const {
    return Tls(ssl_, fd_, limit, call);
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
  SSL* const ssl_;
  const absl::Duration read_limit_, write_limit_;
  Deadline deadline_ = Deadline::After(CarefulServer::kRequestLimit);
  size_t received_ = 0;  // bytes of this request
  char buffer_[4096];    // received and not yet read: [begin_, end_)
  size_t begin_ = 0, end_ = 0;
};

}  // namespace

CarefulServer::CarefulServer() = default;
CarefulServer::~CarefulServer() = default;

Status CarefulServer::UseTls(const std::string& certificate_file, const std::string& key_file) {
  LH_ASSIGN_OR_RETURN(tls_, TlsContext::Load(certificate_file, key_file));
  return absl::OkStatus();
}

void CarefulServer::SetLimits(size_t threads, size_t waiting) {
  new_task_queue = [threads, waiting] { return new BoundedThreads(threads, waiting); };
  // Not httplib's SO_REUSEPORT: with that two programs could share a port unnoticed.
  set_socket_options([](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  set_keep_alive_timeout(kIdleSeconds);
  set_read_timeout(kReadSeconds);
  set_write_timeout(kWriteSeconds);
  set_tcp_nodelay(true);
}

StatusOr<std::string> CarefulServer::Bind(const std::string& address) {
  LH_ASSIGN_OR_RETURN(HostPort bound, ParseHostPort(address));
  bool taken = false;
  if (bound.port == 0) {
    const int port = bind_to_any_port(bound.host);
    if (port > 0) bound.port = static_cast<uint16_t>(port);
    taken = port > 0;
  } else {
    taken = bind_to_port(bound.host, bound.port);
  }
  if (taken) return ToString(bound);
  return Unavailable(
      "cannot listen on {}: another program has the port, or the address is not this machine's",
      address);
}

bool CarefulServer::process_and_close_socket(socket_t socket) {
  const UniqueFd connection(socket);
  SslPtr ssl;
  if (tls_ != nullptr) {
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
    ssl = tls_->NewConnection(socket);
    if (ssl == nullptr) return false;
  }
  RequestStream stream(socket, ssl.get(), absl::Seconds(read_timeout_sec_),
                       absl::Seconds(write_timeout_sec_));
  bool served = false;
  const bool agreed = stream.Accept();
  for (size_t left = agreed ? keep_alive_max_count_ : 0; left > 0 && svr_sock_ != INVALID_SOCKET;
       --left) {
    // A short limit, because the end of the server waits for connections that do nothing.
    if (!stream.has_more() && !Await(socket, POLLIN, absl::Seconds(keep_alive_timeout_sec_))) break;
    stream.Restart();
    bool closed = false;
    served = process_request(stream, /*close_connection=*/left == 1, closed, nullptr);
    if (!served || closed) break;
  }
  if (agreed && ssl != nullptr) {
    ERR_clear_error();
    SSL_shutdown(ssl.get());
  }
  ::shutdown(socket, SHUT_RDWR);
  return served;
}

void SendText(std::string text, const std::string& type, httplib::Response* response) {
  const auto body = std::make_shared<const std::string>(std::move(text));
  response->set_content_provider(body->size(), type,
                                 [body](size_t offset, size_t length, httplib::DataSink& sink) {
                                   return sink.write(body->data() + offset, length);
                                 });
}

}  // namespace longhaul::web
