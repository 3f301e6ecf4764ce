#include "planner/link_estimates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

namespace longhaul::coordinator {
namespace {

// Round trips that differ by less are alike.
constexpr double kAlikeRoundTrips = 2;
constexpr size_t kMostPairsOfAWorker = 3;

using Workers = std::vector<CandidateWorker>;

const LinkMeasurement* Known(const Workers& workers, size_t from, size_t to) {
  const auto found = workers[from].to.find(workers[to].id);
  if (found == workers[from].to.end() || found->second.is_estimate) return nullptr;
  return &found->second;
}

// One way; nullopt: not known.
std::optional<double> LatencyOf(const Workers& workers, size_t from, size_t to) {
  for (const auto& [a, b] : {std::pair(from, to), std::pair(to, from)}) {
    const LinkMeasurement* known = Known(workers, a, b);
    if (known != nullptr && known->latency > absl::ZeroDuration()) {
      return absl::ToDoubleSeconds(known->latency);
    }
  }
  return std::nullopt;
}

// What is known from workers of one region to those of another.
struct SeenBetween {
  double best_bits_per_second = 0;
  std::vector<double> latencies;
};

class Estimates {
 public:
  explicit Estimates(const Workers& workers) : workers_(workers), regions_(RegionsOf(workers)) {
    for (size_t a = 0; a < workers.size(); ++a) {
      for (size_t b = 0; b < workers.size(); ++b) {
        if (a == b) continue;
        SeenBetween& seen = seen_[{regions_[a], regions_[b]}];
        if (const auto latency = LatencyOf(workers, a, b)) seen.latencies.push_back(*latency);
        const LinkMeasurement* known = Known(workers, a, b);
        if (known == nullptr) continue;
        seen.best_bits_per_second = std::max(seen.best_bits_per_second, known->bits_per_second);
      }
    }
    for (auto& [regions, seen] : seen_) std::ranges::sort(seen.latencies);
  }

  std::optional<double> Latency(size_t from, size_t to) const {
    if (const auto known = LatencyOf(workers_, from, to)) return known;
    const std::vector<double>& latencies = seen_.at({regions_[from], regions_[to]}).latencies;
    if (latencies.empty()) return std::nullopt;
    return latencies[latencies.size() / 2];
  }

  // 0: not known.
  double BitsPerSecond(size_t from, size_t to) const {
    const double best = seen_.at({regions_[from], regions_[to]}).best_bits_per_second;
    if (best > 0) return best;
    const std::optional<double> latency = Latency(from, to);
    if (!latency) return 0;
    double nearest = std::numeric_limits<double>::infinity(), bits_per_second = 0;
    for (const auto& [regions, seen] : seen_) {
      if (seen.best_bits_per_second == 0 || seen.latencies.empty()) continue;
      // Inside a region all is faster than between two, however near these are.
      if ((regions.first == regions.second) != (regions_[from] == regions_[to])) continue;
      const double typical = seen.latencies[seen.latencies.size() / 2];
      const double distance = std::abs(std::log(typical / *latency));
      if (distance > std::log(kAlikeRoundTrips) || distance >= nearest) continue;
      nearest = distance;
      bits_per_second = seen.best_bits_per_second;
    }
    return bits_per_second;
  }

 private:
  const Workers& workers_;
  const std::vector<uint32_t> regions_;
  std::map<std::pair<uint32_t, uint32_t>, SeenBetween> seen_;
};

}  // namespace

std::vector<uint32_t> RegionsOf(const Workers& workers) {
  std::vector<uint32_t> region(workers.size());
  std::iota(region.begin(), region.end(), 0);
  for (size_t a = 0; a < workers.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const auto latency = LatencyOf(workers, a, b);
      if (!latency || 2 * *latency > absl::ToDoubleSeconds(kRegionRoundTrip)) continue;
      const uint32_t from = std::max(region[a], region[b]), to = std::min(region[a], region[b]);
      std::ranges::replace(region, from, to);
    }
  }
  std::vector<uint32_t> names = region;
  std::ranges::sort(names);
  for (uint32_t& one : region) {
    const auto less = std::ranges::lower_bound(names, one);
    one = static_cast<uint32_t>(std::set<uint32_t>(names.begin(), less).size());
  }
  return region;
}

void EstimateLinks(Workers* workers) {
  const Workers known = *workers;
  const Estimates estimates(known);
  for (size_t from = 0; from < known.size(); ++from) {
    for (size_t to = 0; to < known.size(); ++to) {
      if (from == to) continue;
      const LinkMeasurement* measured = Known(known, from, to);
      if (measured != nullptr && measured->bits_per_second > 0) continue;
      const double bits_per_second = estimates.BitsPerSecond(from, to);
      const std::optional<double> latency = estimates.Latency(from, to);
      if (bits_per_second == 0 && !latency) continue;
      LinkMeasurement& link = (*workers)[from].to[known[to].id];
      link.bits_per_second = bits_per_second;
      link.latency = absl::Seconds(latency.value_or(0));
      link.is_estimate = true;
    }
  }
}

std::vector<std::pair<uint32_t, uint32_t>> TellingPairs(const Workers& workers) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto count = static_cast<uint32_t>(workers.size());
  std::vector<uint32_t> uses(count);  // how often each is in a pair
  const auto add = [&](uint32_t a, uint32_t b) {
    const LinkMeasurement* known = Known(workers, a, b);
    if (known != nullptr && known->bits_per_second > 0) return;
    const std::pair<uint32_t, uint32_t> pair(std::min(a, b), std::max(a, b));
    if (std::ranges::find(pairs, pair) != pairs.end()) return;
    pairs.push_back(pair);
    ++uses[a];
    ++uses[b];
  };
  const auto distance = [&](uint32_t a, uint32_t b) {
    return LatencyOf(workers, a, b).value_or(std::numeric_limits<double>::infinity());
  };
  for (uint32_t a = 0; a < count; ++a) {
    uint32_t nearest = a == 0 ? 1 : 0;
    for (uint32_t b = 0; b < count; ++b) {
      if (b == a) continue;
      // Among equally near workers one that is in no pair yet is preferred.
      const std::pair key(distance(a, b), uses[b]), least(distance(a, nearest), uses[nearest]);
      if (key < least) nearest = b;
    }
    // Who is in a pair already has been measured near its region.
    if (count > 1 && uses[a] == 0) add(a, nearest);
  }
  const std::vector<uint32_t> regions = RegionsOf(workers);
  const uint32_t last = regions.empty() ? 0 : *std::ranges::max_element(regions);
  std::vector<std::tuple<double, uint32_t, uint32_t>> between;
  for (uint32_t one = 0; one <= last; ++one) {
    for (uint32_t other = one + 1; other <= last; ++other) {
      double least = std::numeric_limits<double>::infinity();
      for (uint32_t a = 0; a < count; ++a) {
        for (uint32_t b = 0; b < count; ++b) {
          if (regions[a] == one && regions[b] == other) least = std::min(least, distance(a, b));
        }
      }
      between.emplace_back(least, one, other);
    }
  }
  std::ranges::sort(between);
  for (const auto& [near, one, other] : between) {
    if (pairs.size() >= kMostPairsOfAWorker * count) break;
    // Each region is measured by the workers that have the fewest pairs so far.
    std::optional<uint32_t> from, to;
    for (uint32_t w = 0; w < count; ++w) {
      if (regions[w] == one && (!from || uses[w] < uses[*from])) from = w;
      if (regions[w] == other && (!to || uses[w] < uses[*to])) to = w;
    }
    add(*from, *to);
  }
  return pairs;
}

}  // namespace longhaul::coordinator
