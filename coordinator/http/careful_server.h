// httplib's server with limits on what a caller may send: httplib reads a line of any length into
// memory, and waits for ever for a caller that sends a byte now and then.
//
// A connection is cut if a request takes longer than kRequestLimit from its first byte to its last
// one, or has more than kMostRequestBytes. Answers may be of any size, and streams of any length.
// Private to this folder. Threads: as httplib::Server.
#pragma once

#include <httplib.h>

#include <cstddef>

#include "absl/time/time.h"

namespace longhaul::coordinator {

class CarefulServer : public httplib::Server {
 public:
  static constexpr size_t kMostRequestBytes = 64 << 10;
  static constexpr absl::Duration kRequestLimit = absl::Seconds(5);

 private:
  bool process_and_close_socket(socket_t socket) override;
};

}  // namespace longhaul::coordinator
