// `auto` between the native communicator and zip: what a kept probe says decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/parity/worker/group_cases.h"
#include "tests/support/temp_dir.h"

namespace longhaul::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

StageOptions With(GroupCollective what, ComputeDtype dtype, bool sequence = false) {
  StageOptions options = OptionsOf({.dtype = dtype, .sequence = sequence});
  options.ranks.resize(options.group.tensor = 2);
  options.group.forward = options.group.backward = what;
  return options;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  return files;
}

// As if the probe had seen zip take `zip_seconds` where the native communicator takes 1 s.
void RewriteProbe(const std::string& path, double zip_seconds) {
  nlohmann::json probe = nlohmann::json::parse(ReadFile(path, 1 << 20).value());
  for (auto& one : probe["probes"]) {
    for (auto& point : one["points"]) {
      point["seconds"] = {1e-9 * point["bytes"].get<double>(),
                          zip_seconds * 1e-9 * point["bytes"].get<double>()};
    }
  }
  ASSERT_TRUE(WriteFileAtomic(path, probe.dump()).ok());
}

struct Ran {
  Computed computed;
  std::string forward, backward;  // rank 0's, in words
};
Ran OneStepOf(const StageOptions& options, const std::string& probes) {
  Ran ran;
  const MakeCommunicators make = CommunicatorsFor(options, probes);
  auto stage = MakeGroupStage(
      options,
      [&](std::shared_ptr<collective::Member> member, const DeviceName& device,
          Deadline deadline) -> StatusOr<RankCommunicators> {
        const bool first = member->place().rank == 0;
        LH_ASSIGN_OR_RETURN(RankCommunicators made, make(std::move(member), device, deadline));
        if (first) {
          ran.forward = made.forward->Describe();
          ran.backward = made.backward->Describe();
          EXPECT_EQ(made.recordable, made.forward == made.exact);
        }
        return made;
      });
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (stage.ok()) {
    RunStep(**stage, options, 1, &ran.computed);
    ran.computed.after = (*stage)->Snapshot().value();
  }
  return ran;
}

class AutoOf : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Sequence, AutoOf, ::testing::Bool());

TEST_P(AutoOf, TakesZipWhereTheProbeSawItWinAndLosesNothing) {
  const testing::TempDir folder;
  const StageOptions chosen = With(GroupCollective::kAuto, ComputeDtype::kBf16, GetParam());
  const Ran plain = OneStepOf(With(GroupCollective::kNone, ComputeDtype::kBf16, GetParam()), "");
  OneStepOf(chosen, folder.path());
  const std::vector<std::string> files = FilesIn(folder.path());
  ASSERT_THAT(files, SizeIs(1));
  for (const double zip_seconds : {0.5, 2.0}) {
    RewriteProbe(files[0], zip_seconds);
    const Ran ran = OneStepOf(chosen, folder.path());
    EXPECT_EQ(ran.forward.find("zip") != std::string::npos, zip_seconds < 1) << ran.forward;
    EXPECT_EQ(ran.backward, ran.forward);
    EXPECT_EQ(ran.computed.losses, plain.computed.losses);
    ExpectSame(ran.computed.after.parameters, plain.computed.after.parameters);
  }
}

// Bytes of hidden states of two rows in bf16, and of what a rank sends to two experts a token.
TEST(Auto, LooksAtAllThatBlocksExchange) {
  using collective::Op;
  const auto of = [](ModelFamily family, bool sequence, uint32_t parts) {
    StageOptions options =
        OptionsOf({.family = family, .dtype = ComputeDtype::kBf16, .sequence = sequence});
    options.ranks.resize(options.group.tensor = 4);
    options.group.expert = parts;
    return BlockExchangesOf(options);
  };
  const StageOptions options = OptionsOf({.family = ModelFamily::kMoe});
  const ModelSpec& model = options.model;
  const uint64_t hidden = uint64_t{2} * model.context * model.hidden * 2;
  const uint64_t slots = hidden / 4 * model.experts_per_token;
  EXPECT_THAT(of(ModelFamily::kLlama, false, 1),
              ElementsAre(BlockExchange{Op::kAllReduce, hidden}));
  EXPECT_THAT(of(ModelFamily::kLlama, true, 1),
              ElementsAre(BlockExchange{Op::kReduceScatter, hidden},
                          BlockExchange{Op::kAllGather, hidden}));
  EXPECT_THAT(of(ModelFamily::kMoe, false, 1), ElementsAre(BlockExchange{Op::kAllReduce, hidden},
                                                           BlockExchange{Op::kAllGather, hidden}));
  EXPECT_THAT(of(ModelFamily::kMoe, false, 2), ElementsAre(BlockExchange{Op::kAllReduce, hidden},
                                                           BlockExchange{Op::kAllGather, hidden},
                                                           BlockExchange{Op::kAllToAll, slots}));
  EXPECT_THAT(of(ModelFamily::kMoe, true, 4), Contains(BlockExchange{Op::kAllToAll, slots}));
}

TEST(Auto, ProbesNothingForSumsInFp32) {
  const testing::TempDir folder;
  const Ran ran = OneStepOf(With(GroupCollective::kAuto, ComputeDtype::kFp32), folder.path());
  EXPECT_THAT(ran.forward, Not(HasSubstr("zip")));
  EXPECT_THAT(FilesIn(folder.path()), SizeIs(0));
}

}  // namespace
}  // namespace longhaul::worker
