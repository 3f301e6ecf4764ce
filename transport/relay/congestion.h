// Chooses the congestion control of a TCP connection whose line loses packets though it is not
// full.
//
// Cubic and Reno take each loss for a full line. Over a long line they then send a small share of
// what the line carries. BBR measures the line instead (docs/gotchas/long_lines.md). Each end
// decides about the direction in which it sends.
//
// Threads: one at a time per object; the functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace longhaul::relay {

// What the kernel says of one connection, about the direction in which this end sends.
struct LineSample {
  uint64_t segments_sent = 0;    // with data; segments that were sent again count again
  uint64_t segments_resent = 0;  // since the connection began; without those the peer had already
  absl::Duration round_trip;     // the kernel's mean of the last ones
  absl::Duration shortest_round_trip;
};

// Returns what TCP_INFO says of the socket `fd`.
StatusOr<LineSample> SampleLine(int fd);

// Decides from samples of one connection, in their order, whether BBR would send more. Pure.
class LossWatch {
 public:
  // Returns how many bytes to send before the next sample.
  size_t bytes_to_next_sample() const;
  // Returns true once: the round trip is long, and two samples within kSegmentsOfTwo segments, or
  // three within kSegmentsOfThree, found a loss while no packets queued on the way. A loss that a
  // full queue caused does not count: the round trip is longer then.
  bool Take(const LineSample& sample);

  // Shorter lines recover from a loss soon.
  static constexpr absl::Duration kLongRoundTrip = absl::Milliseconds(5);
  // An early loss leaves Cubic a small window, in which it may take seconds until a third one. Two
  // so near each other are not chance.
  static constexpr uint64_t kSegmentsOfTwo = 10'000;
  // Fewer losses leave a line of 100 Mbit/s and 50 ms nearly full.
  static constexpr uint64_t kSegmentsOfThree = 100'000;

 private:
  bool decided_ = false;
  absl::Duration shortest_round_trip_ = absl::InfiniteDuration();
  uint64_t resent_ = 0;  // at the last sample
  // Segments sent at the last loss and at the one before.
  std::optional<uint64_t> last_loss_, loss_before_;
};

// Returns the names that any process of this machine may choose, as the kernel lists them: "reno
// cubic". nullopt: the list cannot be read here, as in some containers.
std::optional<std::string> AllowedCongestionControls();

// Makes the socket `fd` send with the congestion control `name`, where it has Cubic or Reno.
// `allowed` is AllowedCongestionControls(): a process that runs as root does not go beyond it.
// kAlreadyExists: the socket has neither of the two, because somebody has chosen another one.
// kFailedPrecondition: the machine does not let it; the message says what its owner does.
Status UseCongestionControl(int fd, std::string_view name,
                            const std::optional<std::string>& allowed);

// The sending direction of one connection, which changes to BBR where LossWatch says so. The log
// says what was done. If the machine does not let it, the log says so once a process.
class SendingLine {
 public:
  // Takes note that `bytes` more were sent over the TCP socket `fd`. `name`: the connection's, for
  // the log.
  void Sent(int fd, size_t bytes, absl::FunctionRef<std::string()> name);

 private:
  LossWatch watch_;
  size_t since_sample_ = 0;  // bytes
};

}  // namespace longhaul::relay
