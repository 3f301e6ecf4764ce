#include <gtest/gtest.h>

#include "run/file/run_spec.h"
#include "tests/support/fuzz_smoke.h"

namespace longhaul {
namespace {

TEST(RunSpecFuzzSmokeTest, DamagedRunFiles) {
  RunSpec spec;
  spec.name = "tiny";
  spec.data.text = {"a.txt"};
  spec.model.layers = spec.model.hidden = spec.model.heads = spec.model.context = 8;
  spec.model.hidden = 32;
  spec.model.family = ModelFamily::kLlama;
  spec.model.kv_heads = 4;
  spec.model.intermediate = 24;
  spec.train.steps = 10;
  spec.train.microbatches = 4;
  spec.topology = TopologySpec{{{"eu", {"w1", "w2"}}, {"us", {"w3"}}},
                               {{"eu", "us", 100'000'000, {absl::Milliseconds(40), {}, 0.001}}}};
  const std::string yaml = ToYaml(spec);
  const Status parsed = ParseRunSpec(yaml, "seed.yaml", {}, nullptr).status();
  ASSERT_TRUE(parsed.ok()) << parsed;
  testing::FuzzSmoke({yaml, yaml + "\n%%\ntrain.steps=3\nlinks.forward=none\n",
                      yaml + "\n%%\nmodel.preset=gpt2\nmodel.family=gpt\n"},
                     2'000, "{}[]:,'\"\n -&*!|>%#e0123.");
}

}  // namespace
}  // namespace longhaul
