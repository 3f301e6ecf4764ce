#include "worker/epoch/numerics.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/unit/worker/tiny_run.h"

namespace longhaul::worker {
namespace {

// All that a cell's number is made of, as it is for a stage of the tiny run on a CPU.
struct Case {
  Case() {
    device.set_kind("cpu");
    device.set_name("a CPU");
    device.set_cores(4);
  }
  uint64_t Number() const {
    const std::vector devices(assignment.cells[0].group.tensor, device);
    return NumericsOf(assignment, assignment.cells[0], spec, devices, surroundings);
  }

  RunSpec spec = TinySpec();
  Assignment assignment = TinyAssignment(spec, 1, std::string(64, 'a'), {"a:1", "b:1"});
  v1::Device device;
  std::string surroundings = "libraries";
};

uint64_t After(const std::function<void(Case&)>& change) {
  Case changed;
  change(changed);
  return changed.Number();
}

TEST(Numerics, IsTheSameWhereTheBitsAre) {
  const uint64_t before = Case().Number();
  EXPECT_NE(before, 0u);
  EXPECT_EQ(After([](Case& c) { c.assignment.epoch = Epoch(9); }), before);
  EXPECT_EQ(After([](Case& c) { c.assignment.start_step = 40; }), before);
  EXPECT_EQ(After([](Case& c) {
              Cell& cell = c.assignment.cells[0];
              cell.worker = WorkerId("another");
              cell.setting.depth = 1;
              cell.setting.activation_lead = 1;
              cell.endpoints.clear();
            }),
            before);
  EXPECT_EQ(After([](Case& c) { c.assignment.edges[0].transport = "grpc"; }), before);
  EXPECT_EQ(After([](Case& c) { c.device.set_memory_bytes(1); }), before);
  EXPECT_EQ(After([](Case& c) { c.device.set_cores(64); }), before) << "one thread needs one";
}

TEST(Numerics, IsAnotherWhereTheBitsMayBe) {
  const uint64_t before = Case().Number();
  EXPECT_NE(After([](Case& c) { c.surroundings += ", newer"; }), before);
  EXPECT_NE(After([](Case& c) { c.device.set_name("another CPU"); }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.cells[0].setting.threads = 2; }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.cells[0].group.tensor = 2; }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.cells[0].layers.count = 2; }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.cells[0].roles.head = true; }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.edges[0].backward.codec = "bf16"; }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.edges[0].id = EdgeId(5); }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.data.token_file_sha256[0] = 'b'; }), before);
  EXPECT_NE(After([](Case& c) { c.assignment.run_yaml += ' '; }), before);
  // A library uses no more threads than there are cores.
  const auto threads = [](uint32_t cores) {
    return After([cores](Case& c) {
      c.assignment.cells[0].setting.threads = 8;
      c.device.set_cores(cores);
    });
  };
  EXPECT_NE(threads(4), threads(8));
  EXPECT_EQ(threads(8), threads(64));
}

TEST(Numerics, PromisesNothingWhereSumsHaveAnyOrder) {
  const auto on_gpu = [](Case& c) { c.device.set_kind("cuda"); };
  EXPECT_EQ(After(on_gpu), 0u);
  EXPECT_NE(After([&](Case& c) {
              on_gpu(c);
              c.spec.train.deterministic = true;
            }),
            0u);
  EXPECT_EQ(After([](Case& c) { c.spec.replay.emplace(); }), 0u);
  EXPECT_EQ(After([](Case& c) { c.surroundings.clear(); }), 0u);
}

TEST(Numerics, PromisesNothingWhereWhoSumsIsChosenByTimes) {
  const auto of_ranks = [](const std::string& kind, uint32_t ranks) {
    return After([&](Case& c) {
      c.device.set_kind(kind);
      c.spec.train.deterministic = true;
      c.spec.group.backward = GroupCollective::kAuto;
      c.assignment.cells[0].group.tensor = ranks;
    });
  };
  EXPECT_EQ(of_ranks("cuda", 4), 0u);
  EXPECT_NE(of_ranks("cuda", 2), 0u);
  EXPECT_NE(of_ranks("cpu", 4), 0u);
}

TEST(Numerics, ThisSystemsSurroundingsAreKnown) {
  EXPECT_NE(Surroundings().find("LibTorch "), std::string::npos);
  EXPECT_NE(Surroundings().find("\nlibc "), std::string::npos);
  EXPECT_NE(Surroundings().find("sse"), std::string::npos);
}

}  // namespace
}  // namespace longhaul::worker
