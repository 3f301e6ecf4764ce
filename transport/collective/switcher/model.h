// Predicts times from a probe's measurements, and chooses the communicator for each size. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/collective/switcher/factory.h"

namespace longhaul::collective::switcher {

// Times of all communicators, the native one first. 0 seconds: the communicator cannot do the call.
struct Point {
  uint64_t bytes = 0;
  std::vector<double> seconds;
};
struct Probe {
  Op op = Op::kAllReduce;
  Dtype dtype = Dtype::kBf16;
  std::vector<Point> points;   // ascending bytes
  std::vector<double> ratios;  // of all communicators, in the probe's calls
};

// T(d) = start + per_byte x d.
struct Fit {
  double start = 0, per_byte = 0;
  double At(double bytes) const { return start + per_byte * bytes; }
};
// Fits by least squares of relative errors; neither number is negative. With one point `start` is
// 0.
Fit FitOf(std::span<const Point> points, size_t communicator);

// b = code + wire / ratio.
struct Slope {
  double code = 0, wire = 0;
  double At(double ratio) const { return code + wire / ratio; }
};
// `per_byte` was measured at `ratio`; `wire` is the time of an uncompressed byte.
Slope SlopeOf(double per_byte, double wire, double ratio);

// The smallest size from which the probe saw the alternative `margin` faster than the native one,
// interpolated between sizes; nullopt if it lost at the largest.
std::optional<double> WinsFrom(std::span<const Point> points, size_t communicator, double margin);

// A communicator as RangesOf sees it.
struct Candidate {
  Fit fit;
  double from = 0;  // bytes; not chosen below
  bool usable = true;
};
// The first candidate is the native one. Each range goes to the fastest candidate; alternatives
// must be faster by `margin`.
std::vector<Range> RangesOf(std::span<const Candidate> candidates, double margin);
// Returns the line of the range that contains `bytes`.
size_t Choose(std::span<const Range> ranges, uint64_t bytes);

}  // namespace longhaul::collective::switcher
