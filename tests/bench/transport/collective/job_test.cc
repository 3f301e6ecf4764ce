#include "tests/bench/transport/collective/job.h"

#include <gmock/gmock.h>

#include <numeric>

namespace longhaul::collective::bench {
namespace {

TEST(JobTest, CountsBytesAsNcclTestsDo) {
  const Options options{.ranks = 4,
                        .operations = {Op::kAllReduce, Op::kAllGather},
                        .min_bytes = 4096,
                        .max_bytes = 70000,
                        .factor = 4};
  const std::vector<Job> jobs = JobsOf(options);
  ASSERT_EQ(jobs.size(), 6);
  EXPECT_EQ(jobs[2].bytes, 65536);
  EXPECT_EQ(jobs[2].count, 32768);
  EXPECT_EQ(jobs[2].bus_factor, 1.5);
  EXPECT_EQ(jobs[5].bytes, 65536);
  EXPECT_EQ(jobs[5].count, 8192);
  EXPECT_EQ(jobs[5].bus_factor, 0.75);
}

TEST(JobTest, PartsAreWholeSixteenBytes) {
  const Options options{
      .ranks = 3, .operations = {Op::kAllToAll}, .min_bytes = 4096, .max_bytes = 4096};
  EXPECT_EQ(JobsOf(options)[0].bytes, 3 * 1360);
}

TEST(JobTest, TokensGoWhereTheirExpertsAre) {
  Options options{.ranks = 4};
  options.routing = {.exponent = 1.2, .experts = 16, .tokens = 1000, .hidden = 8};
  const Job job = JobsOf(options)[0];
  ASSERT_EQ(job.counts.size(), 16);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(std::accumulate(&job.counts[rank * 4], &job.counts[rank * 4] + 4, uint64_t{0}), 8000);
  }
  EXPECT_GT(job.imbalance, 1.1);
  EXPECT_LT(job.imbalance, 4);
  EXPECT_EQ(job.counts, JobsOf(options)[0].counts);

  // What a rank sends to another is what that one expects, and knows the place of.
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const Part part = PartOf(job, rank, 4);
    EXPECT_EQ(part.in, 8000);
    uint64_t at = 0;
    for (uint32_t peer = 0; peer < 4; ++peer) {
      const Part other = PartOf(job, peer, 4);
      EXPECT_EQ(part.receive[peer].count, other.send[rank].count);
      EXPECT_EQ(part.expected[peer].first, other.send[rank].offset);
      EXPECT_EQ(part.expected[peer].at, at);
      at += part.receive[peer].count;
    }
    EXPECT_EQ(part.out, at);
  }
}

}  // namespace
}  // namespace longhaul::collective::bench
