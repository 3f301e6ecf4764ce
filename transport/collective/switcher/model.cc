#include "transport/collective/switcher/model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace longhaul::collective::switcher {
namespace {

// No tensor is larger.
constexpr double kMostBytes = 1e15;

bool Faster(const Point& point, size_t communicator, double margin) {
  const double seconds = point.seconds[communicator];
  return seconds > 0 && seconds * (1 + margin) <= point.seconds[0];
}

// Where the lines of both between two sizes meet, the alternative's with its margin.
double Crossing(const Point& lost, const Point& won, size_t communicator, double margin) {
  const auto lead = [&](const Point& point) {
    return point.seconds[0] - point.seconds[communicator] * (1 + margin);
  };
  const double share = -lead(lost) / (lead(won) - lead(lost));
  const auto from = static_cast<double>(lost.bytes), to = static_cast<double>(won.bytes);
  return from + std::clamp(share, 0.0, 1.0) * (to - from);
}

}  // namespace

Fit FitOf(std::span<const Point> points, size_t communicator) {
  // Weights 1 / T^2: a share of a small time counts as much as the same share of a large one.
  double w = 0, wd = 0, wdd = 0, wt = 0, wdt = 0;
  size_t count = 0;
  for (const Point& point : points) {
    const double t = point.seconds[communicator];
    if (!(t > 0)) continue;
    const auto d = static_cast<double>(point.bytes);
    const double weight = 1 / (t * t);
    w += weight;
    wd += weight * d;
    wdd += weight * d * d;
    wt += weight * t;
    wdt += weight * d * t;
    ++count;
  }
  if (count == 0) return {};
  const double by = w * wdd - wd * wd;
  const Fit along{0, wdt / wdd};
  if (count == 1 || !(by > 0)) return along;
  const Fit fit{(wt * wdd - wd * wdt) / by, (w * wdt - wd * wt) / by};
  if (fit.start < 0) return along;
  if (fit.per_byte < 0) return {wt / w, 0};
  return fit;
}

Slope SlopeOf(double per_byte, double wire, double ratio) {
  // More than all of it cannot be the wire's.
  const double most = per_byte * ratio;
  const double part = std::min(wire, most);
  return {per_byte - part / ratio, part};
}

std::optional<double> WinsFrom(std::span<const Point> points, size_t communicator, double margin) {
  if (points.empty() || !Faster(points.back(), communicator, margin)) return std::nullopt;
  for (size_t k = points.size(); k-- > 0;) {
    if (Faster(points[k], communicator, margin)) continue;
    // A size that it could not do says nothing of those beside it.
    if (!(points[k].seconds[communicator] > 0)) return static_cast<double>(points[k + 1].bytes);
    return Crossing(points[k], points[k + 1], communicator, margin);
  }
  return 0;
}

std::vector<Range> RangesOf(std::span<const Candidate> candidates, double margin) {
  const auto time = [&](size_t k, double bytes) {
    return candidates[k].fit.At(bytes) * (k == 0 ? 1 : 1 + margin);
  };
  // Between two neighbouring borders one communicator is fastest all the way.
  std::vector<double> borders = {0};
  for (size_t k = 1; k < candidates.size(); ++k) {
    if (!candidates[k].usable) continue;
    borders.push_back(candidates[k].from);
    for (size_t other = 0; other < k; ++other) {
      const double slopes = (time(k, 1) - time(k, 0)) - (time(other, 1) - time(other, 0));
      if (slopes != 0) borders.push_back((time(other, 0) - time(k, 0)) / slopes);
    }
  }
  std::erase_if(borders, [](double at) { return !(at >= 0 && at < kMostBytes); });
  std::sort(borders.begin(), borders.end());
  std::vector<Range> ranges;
  for (size_t border = 0; border < borders.size(); ++border) {
    const double end = border + 1 < borders.size() ? borders[border + 1] : 2 * kMostBytes;
    const double middle = (borders[border] + end) / 2;
    size_t best = 0;
    for (size_t k = 1; k < candidates.size(); ++k) {
      const bool may = candidates[k].usable && candidates[k].from <= middle;
      if (may && time(k, middle) < time(best, middle)) best = k;
    }
    const auto from = static_cast<uint64_t>(std::ceil(borders[border]));
    if (!ranges.empty() && ranges.back().bytes == from) ranges.pop_back();
    if (ranges.empty() || ranges.back().line != best) ranges.push_back({from, best});
  }
  return ranges;
}

size_t Choose(std::span<const Range> ranges, uint64_t bytes) {
  size_t k = 0;
  while (k + 1 < ranges.size() && bytes >= ranges[k + 1].bytes) ++k;
  return ranges[k].line;
}

std::string ToText(const std::vector<Decision>& decisions) {
  std::string text;
  for (const Decision& decision : decisions) {
    text += fmt::format("{} of {}:", ToString(decision.op), ToString(decision.dtype));
    for (const Range& range : decision.ranges) {
      const std::string& name = decision.lines[range.line].name;
      text += range.bytes == 0 ? fmt::format(" {}", name)
                               : fmt::format(", from {} on {}",
                                             FormatBytes(static_cast<double>(range.bytes)), name);
    }
    text += '\n';
    for (const Line& line : decision.lines) {
      text += fmt::format("  {:<24} {:>9.1f} us + {:>9.3f} us/MB, ratio {:.3f}; {} calls, {}\n",
                          line.name, line.start_seconds * 1e6, line.seconds_per_byte * 1e12,
                          line.ratio, line.calls, FormatBytes(static_cast<double>(line.bytes)));
    }
  }
  return text;
}

}  // namespace longhaul::collective::switcher
