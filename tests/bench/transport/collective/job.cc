#include "tests/bench/transport/collective/job.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace longhaul::collective::bench {
namespace {

Job JobOf(Op op, uint64_t bytes, const Options& options) {
  const uint64_t element = BytesPerElement(options.dtype);
  // Parts are multiples of 16 bytes where there is room for that, as nccl-tests have them.
  uint64_t part = bytes / options.ranks / element;
  const uint64_t step = 16 / element;
  part = part >= step ? part / step * step : std::max<uint64_t>(part, 1);
  Job job{.op = op, .count = part, .bytes = part * options.ranks * element};
  const double others = 1 - 1.0 / options.ranks;
  job.bus_factor = others;
  if (op == Op::kAllReduce) {
    job.count = bytes / element;
    job.bytes = job.count * element;
    job.bus_factor = 2 * others;
  }
  return job;
}

// Tokens choose experts by Zipf's law: the k-th most liked one with weight 1 / k^exponent. Which
// one that is, is shuffled.
Job RoutedJob(const Options& options) {
  const Routing& routing = options.routing;
  std::mt19937_64 random(77);
  std::vector<uint32_t> experts(routing.experts);
  std::iota(experts.begin(), experts.end(), 0u);
  std::shuffle(experts.begin(), experts.end(), random);
  std::vector<double> weights(routing.experts);
  for (uint32_t k = 0; k < routing.experts; ++k) {
    weights[experts[k]] = std::pow(k + 1.0, -routing.exponent);
  }
  std::discrete_distribution<uint32_t> choose(weights.begin(), weights.end());
  const uint32_t ranks = options.ranks;
  Job job{.op = Op::kAllToAll};
  job.counts.resize(size_t{ranks} * ranks);
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint64_t token = 0; token < routing.tokens; ++token) {
      const uint32_t to = choose(random) / (routing.experts / ranks);
      job.counts[from * ranks + to] += routing.hidden;
    }
  }
  uint64_t largest = 0, busiest = 0, most_received = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    uint64_t sent = 0, received = 0;
    for (uint32_t peer = 0; peer < ranks; ++peer) {
      sent += job.counts[rank * ranks + peer];
      received += job.counts[peer * ranks + rank];
    }
    const uint64_t own = job.counts[rank * ranks + rank];
    largest = std::max({largest, sent, received});
    busiest = std::max({busiest, sent - own, received - own});
    most_received = std::max(most_received, received);
  }
  job.bytes = largest * BytesPerElement(options.dtype);
  job.bus_factor = static_cast<double>(busiest) / static_cast<double>(largest);
  job.imbalance =
      static_cast<double>(most_received) / static_cast<double>(routing.tokens * routing.hidden);
  return job;
}

}  // namespace

std::vector<Job> JobsOf(const Options& options) {
  if (options.routing.exponent > 0) return {RoutedJob(options)};
  std::vector<Job> jobs;
  for (const Op op : options.operations) {
    for (uint64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor) {
      jobs.push_back(JobOf(op, bytes, options));
    }
  }
  return jobs;
}

Part PartOf(const Job& job, uint32_t rank, uint32_t ranks) {
  Part part;
  const uint64_t all = job.count * ranks;
  switch (job.op) {
    case Op::kAllReduce:
      part.in = part.out = job.count;
      part.expected = {{0, job.count, 0, std::nullopt}};
      return part;
    case Op::kReduceScatter:
      part.in = all;
      part.out = job.count;
      part.place = rank * job.count;
      part.expected = {{0, job.count, rank * job.count, std::nullopt}};
      return part;
    case Op::kAllGather:
      part.in = job.count;
      part.out = all;
      part.place = rank * job.count;
      for (uint32_t r = 0; r < ranks; ++r) {
        part.expected.push_back({r * job.count, job.count, 0, r});
      }
      return part;
    default:
      break;
  }
  const auto count = [&](uint32_t from, uint32_t to) {
    return job.counts.empty() ? job.count : job.counts[from * ranks + to];
  };
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    uint64_t first = 0;  // of what the peer sends to this rank, in the peer's input
    for (uint32_t r = 0; r < rank; ++r) first += count(peer, r);
    part.send.push_back({part.in, count(rank, peer)});
    part.receive.push_back({part.out, count(peer, rank)});
    part.expected.push_back({part.out, count(peer, rank), first, peer});
    part.in += count(rank, peer);
    part.out += count(peer, rank);
  }
  return part;
}

}  // namespace longhaul::collective::bench
