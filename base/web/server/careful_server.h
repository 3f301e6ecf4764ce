// httplib's server with limits on what a caller may send: httplib reads a line of any length into
// memory, and waits for ever for a caller that sends a byte now and then. With or without TLS.
//
// A connection is cut if a request takes longer than kRequestLimit from its first byte to its last
// one, or has more than kMostRequestBytes. Answers may be of any size, and streams of any length.
// Threads: as httplib::Server.
#pragma once

#include <httplib.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/status.h"
#include "base/work_threads.h"

namespace longhaul::web {

class TlsContext;

class CarefulServer : public httplib::Server {
 public:
  static constexpr size_t kMostRequestBytes = 64 << 10;
  static constexpr absl::Duration kRequestLimit = absl::Seconds(5);

  CarefulServer();
  ~CarefulServer() override;

  // Encrypts all connections. Files: PEM; a renewed certificate is used without a restart. Call it
  // before the server listens. Errors: those of TlsContext::Load.
  Status UseTls(const std::string& certificate_file, const std::string& key_file);
  bool uses_tls() const { return tls_ != nullptr; }
  // Answers requests on `threads` threads. `waiting`: connections that wait for a thread; more stay
  // in the kernel's queue and take none of the program's descriptors. Sets limits of time: one
  // second of silence of a caller, five of one that does not take what is sent.
  void SetLimits(size_t threads, size_t waiting);
  // Binds to host:port; port 0: any free one. Returns the address that is really bound.
  // kUnavailable: another program has the port, or the address is not this machine's.
  StatusOr<std::string> Bind(const std::string& address);

 private:
  bool process_and_close_socket(socket_t socket) override;

  std::unique_ptr<TlsContext> tls_;
};

// Has the response send `text` as it is. Not httplib's set_content, which compresses it where the
// caller takes that, with brotli at its slowest: seconds for what a fast line takes milliseconds.
void SendText(std::string text, const std::string& type, httplib::Response* response);

}  // namespace longhaul::web
