// Measures the goodput of a link from the arrival times of its frames, until the rate is steady.
//
//   GoodputMeter meter(round_trip);
//   while (!meter.Done()) meter.Arrived(bytes, now);  // frame by frame
//   meter.BitsPerSecond();
//
// Pure: no clock of its own. One thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::worker {

class GoodputMeter {
 public:
  // A measurement ends with the first frame after kMaxBytes or kMaxTime; a link that falls silent
  // never ends it, so a caller needs a deadline of its own. After kEnoughBytes it ends if it has
  // lasted for enough round trips, which is soon on a short link.
  static constexpr size_t kEnoughBytes = size_t{64} << 20;
  static constexpr size_t kMaxBytes = size_t{256} << 20;
  static constexpr absl::Duration kMaxTime = absl::Seconds(3);

  // `round_trip`: the round-trip time of the idle link. Rates are measured over several round
  // trips, because TCP's slow start doubles the rate in each.
  explicit GoodputMeter(absl::Duration round_trip);

  // Counts a frame of `bytes` bytes. The first frame only starts the measurement: its bytes do not
  // count.
  void Arrived(size_t bytes, MonoTime now);
  // True once the rate has been steady for a while, or a limit is reached.
  bool Done() const { return done_; }
  // Returns the steady rate. If the rate never became steady, returns the fastest rate over some
  // round trips: on a long link one loss slows TCP for seconds, but TCP reaches its earlier rate
  // again. 0: unknown.
  double BitsPerSecond() const;

 private:
  struct Arrival {
    MonoTime at;
    size_t bytes;  // received so far, without the first frame
  };
  size_t At(MonoTime time) const;
  double Rate(size_t first, size_t last) const;  // between two arrivals
  bool CheckSteady(double share);
  void NoteFastest();

  const absl::Duration round_trip_;
  std::vector<Arrival> arrivals_;
  MonoTime check_at_;
  double fastest_ = 0;      // bits a second over a window
  size_t steady_from_ = 0;  // index of an arrival
  bool steady_ = false, done_ = false;
};

}  // namespace longhaul::worker
