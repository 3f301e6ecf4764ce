// An address at which connections are taken in, by the kernel, and nobody ever answers: as of a
// machine that has vanished behind a firewall, or of a program that has stopped.
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
  const std::string& address() const { return address_; }

 private:
  const UniqueFd fd_;
  std::string address_;
};

}  // namespace longhaul::testing
