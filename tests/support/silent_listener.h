// Listens on a free port of 127.0.0.1 and never answers. The kernel accepts connections, but nobody
// reads or writes. A client sees a program that hangs. The constructor ends the process if it
// cannot listen; the destructor closes the port.
#pragma once

#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/check.h"
#include "base/unique_fd.h"

namespace longhaul::testing {

class SilentListener {
 public:
  SilentListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(name);
    auto* const any = reinterpret_cast<sockaddr*>(&name);
    LH_CHECK(::bind(fd_.get(), any, bytes) == 0 && ::listen(fd_.get(), 16) == 0 &&
                 ::getsockname(fd_.get(), any, &bytes) == 0,
             "cannot listen on loopback");
    address_ = fmt::format("127.0.0.1:{}", ntohs(name.sin_port));
  }
  const std::string& address() const { return address_; }  // "127.0.0.1:43521"

 private:
  const UniqueFd fd_;
  std::string address_;
};

}  // namespace longhaul::testing
