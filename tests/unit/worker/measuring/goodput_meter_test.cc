// When a link's rate counts as measured, on frames that arrive at given times.
#include "worker/measuring/goodput_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace longhaul::worker {
namespace {

struct Outcome {
  double bits_per_second = 0;
  absl::Duration took;
  size_t bytes = 0;
};

// Frames of 16 KiB, each at the rate of that time.
Outcome Feed(absl::Duration round_trip, const std::function<double(absl::Duration)>& rate) {
  constexpr size_t kFrame = 16384;
  GoodputMeter meter(round_trip);
  const MonoTime start = MonoTime() + absl::Hours(1);
  absl::Duration time;
  Outcome outcome;
  while (!meter.Done()) {
    meter.Arrived(kFrame, start + time);
    outcome.took = time;
    outcome.bytes += kFrame;
    time += absl::Seconds(8.0 * kFrame / rate(time));
  }
  outcome.bits_per_second = meter.BitsPerSecond();
  return outcome;
}

TEST(GoodputMeter, ASteadyRateIsKnownSoon) {
  for (const double rate : {3e6, 10e6, 100e6, 1e9}) {
    const Outcome outcome = Feed(absl::Milliseconds(1), [=](absl::Duration) { return rate; });
    EXPECT_NEAR(outcome.bits_per_second, rate, 0.001 * rate);
    EXPECT_LT(outcome.took, absl::Seconds(1)) << rate;
  }
}

// As a shaper lets through what its bucket holds.
TEST(GoodputMeter, ABurstAtTheBeginningDoesNotCount) {
  const Outcome outcome = Feed(absl::Milliseconds(1), [](absl::Duration time) {
    return time < absl::Milliseconds(40) ? 1e9 : 20e6;
  });
  EXPECT_NEAR(outcome.bits_per_second, 20e6, 0.03 * 20e6);
}

// As TCP gets up to speed over a long way.
TEST(GoodputMeter, ASlowStartIsWaitedFor) {
  const absl::Duration round_trip = absl::Milliseconds(100);
  const Outcome outcome = Feed(round_trip, [=](absl::Duration time) {
    return std::min(50e6, 1e6 * std::exp2(absl::FDivDuration(time, round_trip)));
  });
  EXPECT_NEAR(outcome.bits_per_second, 50e6, 0.03 * 50e6);
  EXPECT_LT(outcome.took, GoodputMeter::kMaxTime);
}

TEST(GoodputMeter, ARateThatIsNeverSteadyIsTheFastestThatItWas) {
  const Outcome outcome = Feed(absl::Milliseconds(1), [](absl::Duration time) {
    return 10e6 * (1 + absl::ToDoubleSeconds(time));
  });
  EXPECT_GE(outcome.took, GoodputMeter::kMaxTime);
  EXPECT_NEAR(outcome.bits_per_second, 39.5e6, 1e6);
}

// As TCP goes on after it has lost packets of a full queue, flat, for longer than is measured.
TEST(GoodputMeter, OverALongWayASteadyRateBelowTheFastestIsNotBelieved) {
  const absl::Duration round_trip = absl::Milliseconds(50);
  const Outcome outcome = Feed(round_trip, [=](absl::Duration time) {
    if (time > absl::Milliseconds(650)) return 500e6;
    return std::min(950e6, 5e6 * std::exp2(absl::FDivDuration(time, round_trip)));
  });
  EXPECT_NEAR(outcome.bits_per_second, 950e6, 0.03 * 950e6);
  EXPECT_GE(outcome.took, absl::Seconds(1));
}

TEST(GoodputMeter, WhatIsVeryFastTakesNoMoreThanItsShareOfBytes) {
  int frames = 0;
  const Outcome outcome = Feed(absl::ZeroDuration(), [&](absl::Duration) {
    return ++frames % 2 == 0 ? 40e9 : 10e9;  // 16 Gbit/s on average
  });
  EXPECT_LE(outcome.bytes, GoodputMeter::kEnoughBytes + 65536);
  EXPECT_NEAR(outcome.bits_per_second, 16e9, 0.01 * 16e9);
}

TEST(GoodputMeter, KnowsNothingOfOneFrame) {
  GoodputMeter meter(absl::ZeroDuration());
  EXPECT_EQ(meter.BitsPerSecond(), 0);
  meter.Arrived(1000, MonoTime());
  EXPECT_EQ(meter.BitsPerSecond(), 0);
  EXPECT_FALSE(meter.Done());
}

}  // namespace
}  // namespace longhaul::worker
