#include <gtest/gtest.h>

#include "tests/support/fuzz_smoke.h"

namespace longhaul {
namespace {

TEST(SweepSpecFuzzSmokeTest, DamagedSweepFiles) {
  testing::FuzzSmoke(
      {"base: run.yaml\nrates: [1gbit, 10mbit]\ndelays: [0ms, 25ms]\njitter: 1ms\nloss: 0.1%\n"
       "links:\n  a: { forward: none, backward: \"fixed:bits=4\" }\nschedules: [1f1b]\n"
       "set: { train.steps: 20 }\nvariants: { b: { train.seed: 2 } }\nrepeats: 2\nworkers: 4\n"},
      2'000, "{}[]:,'\"\n -&*!|>%#e0123.");
}

}  // namespace
}  // namespace longhaul
