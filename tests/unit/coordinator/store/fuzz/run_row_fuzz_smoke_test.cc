#include <gtest/gtest.h>

#include "longhaul/v1/plan.pb.h"
#include "tests/support/fuzz_smoke.h"

namespace longhaul::coordinator {
namespace {

// A bit for each column, least significant first: id, name, state, reason, epoch, step, spec, ...
std::string Replacing(std::initializer_list<int> columns, const std::string& values) {
  unsigned bits = 0;
  for (const int column : columns) bits |= 1u << column;
  return std::string{static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)} + values;
}

TEST(RunRowFuzzSmokeTest, DamagedRows) {
  v1::Plan plan;
  plan.mutable_assignment()->set_epoch(2);
  plan.mutable_assignment()->add_cells()->set_worker_id("w0");
  std::vector<std::string> seeds = {
      Replacing({}, ""),
      Replacing({10}, plan.SerializeAsString()),
      Replacing({4, 5}, "7%%9"),
      Replacing({8, 11}, "\x04\x0a\x02xy%%\x02\x20\x05"),
  };
  for (const char* state : {"queued", "planning", "preparing", "running", "finishing", "done",
                            "stopped", "failed", "recovering"}) {
    seeds.push_back(Replacing({2, 10}, std::string(state) + "%%" + plan.SerializeAsString()));
  }
  testing::FuzzSmoke(seeds, 5'000);
}

}  // namespace
}  // namespace longhaul::coordinator
