// Predicts times from a probe's measurements, and chooses the communicator for each size. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/collective/switcher/factory.h"

namespace longhaul::collective::switcher {

// Measured times of calls of one size, by communicator, the native one first. 0 seconds: the
// communicator cannot make the call.
struct Point {
  uint64_t bytes = 0;
  std::vector<double> seconds;
};
struct Probe {
  Op op = Op::kAllReduce;
  Dtype dtype = Dtype::kBf16;
  std::vector<Point> points;   // ascending bytes
  std::vector<double> ratios;  // uncompressed / sent bytes, by communicator, at the largest size
};

// T(d) = start + per_byte x d.
struct Fit {
  double start = 0, per_byte = 0;
  double At(double bytes) const { return start + per_byte * bytes; }
};
// Fits the times of one communicator (an index in Point::seconds) by least squares of relative
// errors. Neither number of the result is negative. With one point `start` is 0; without points
// both numbers are 0.
Fit FitOf(std::span<const Point> points, size_t communicator);

// Seconds per byte of a compressing communicator: code + wire / ratio.
struct Slope {
  double code = 0, wire = 0;
  double At(double ratio) const { return code + wire / ratio; }
};
// Splits `per_byte`, seconds measured at `ratio`, into its two parts. `wire`: the seconds to send a
// byte without compression.
Slope SlopeOf(double per_byte, double wire, double ratio);

// Returns the smallest size, in bytes, from which on the alternative with the index `communicator`
// was faster than the native one by `margin` in the probe, interpolated between sizes. nullopt: the
// alternative lost at the largest size, or there are no points.
std::optional<double> WinsFrom(std::span<const Point> points, size_t communicator, double margin);

// A communicator that RangesOf may choose.
struct Candidate {
  Fit fit;
  double from = 0;  // bytes; never chosen for smaller calls
  bool usable = true;
};
// Divides all sizes into ranges, each for the fastest candidate. The first candidate is the native
// one; the others must be faster than it by `margin`.
std::vector<Range> RangesOf(std::span<const Candidate> candidates, double margin);
// Returns the `line` of the range that contains `bytes`: the index of the chosen communicator.
// `ranges` must not be empty.
size_t Choose(std::span<const Range> ranges, uint64_t bytes);

}  // namespace longhaul::collective::switcher
