// What a link carries, from the arrival of its frames: measured until it is steady.
//
//   GoodputMeter meter(round_trip);
//   while (!meter.Done()) meter.Arrived(bytes, now);  // frame by frame
//   meter.BitsPerSecond();
//
// Pure: no clock of its own. One thread at a time.
#ifndef LONGHAUL_WORKER_RPC_GOODPUT_METER_H_
#define LONGHAUL_WORKER_RPC_GOODPUT_METER_H_

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::worker {

class GoodputMeter {
 public:
  // Enough where the way is short, at most, and at most.
  static constexpr size_t kEnoughBytes = size_t{64} << 20;
  static constexpr size_t kMaxBytes = size_t{256} << 20;
  static constexpr absl::Duration kMaxTime = absl::Seconds(3);

  // `round_trip` of the idle link: TCP's slow start grows by round trips, so rates over less say
  // nothing.
  explicit GoodputMeter(absl::Duration round_trip);

  void Arrived(size_t bytes, MonoTime now);
  // The rate has been steady for a while, or there was time and data enough.
  bool Done() const { return done_; }
  // The steady rate; where there was none, the fastest of some round trips: over a long way a loss
  // makes TCP slow for seconds, and what it reached before is what it will reach again. 0: nothing
  // is known.
  double BitsPerSecond() const;

 private:
  struct Arrival {
    MonoTime at;
    size_t bytes;  // so far, without the first: how long that took is not known
  };
  size_t At(MonoTime time) const;
  double Rate(size_t first, size_t last) const;  // between two arrivals
  bool CheckSteady(double share);
  void NoteFastest();

  const absl::Duration round_trip_;
  std::vector<Arrival> arrivals_;
  MonoTime check_at_;
  double fastest_ = 0;      // bits a second over a window
  size_t steady_from_ = 0;  // arrival
  bool steady_ = false, done_ = false;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_GOODPUT_METER_H_
