// A model whose ranks have channels of their own, exported: generation from the folder gives the
// losses that training's evaluation gave.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/published/export.h"
#include "run/published/weights.h"
#include "tests/parity/worker/group_cases.h"
#include "tests/support/temp_dir.h"
#include "worker/stage/group/group_generator.h"

namespace longhaul::worker {
namespace {

struct Exported {
  ModelFamily family;
  uint32_t ranks;
  double shared;
};

StageOptions OptionsToExport(const Exported& one) {
  StageOptions options = OptionsOf({.family = one.family, .vocabulary = 251});
  if (one.family == ModelFamily::kLlama) options.model.kv_heads = 4;
  options.group.tensor = one.ranks;
  options.group.shared_channels = one.shared;
  return options;
}

void Export(const StageOptions& options, const StageSnapshot& snapshot, const std::string& folder) {
  std::map<std::string, std::span<const float>> values;
  for (const NamedArray& array : snapshot.parameters) values[array.name] = array.values;
  const Status written = published::WriteFolder(
      folder,
      {.model = options.model,
       .ranks = {.count = options.group.tensor, .shared_channels = options.group.shared_channels}},
      [&](const model::PlacedParameter& parameter) { return values.at(parameter.Name()); });
  ASSERT_TRUE(written.ok()) << written;
}

StatusOr<std::unique_ptr<Generator>> Read(const std::string& folder) {
  LH_ASSIGN_OR_RETURN(const published::Weights weights, published::ReadFolder(folder));
  LH_ASSIGN_OR_RETURN(const published::Config config,
                      published::ParseConfig(weights.config_json, "longhaul.json"));
  const GeneratorOptions options = {.model = config.model};
  const std::vector<DeviceName> devices(config.ranks.count);
  StageOptions stage = StageOptionsOf(options);
  stage.ranks = devices;
  stage.group.tensor = config.ranks.count;
  stage.group.shared_channels = config.ranks.shared_channels;
  return MakeGroupGenerator(
      options, stage.group, devices,
      [&](const model::PlacedParameter& parameter, std::span<float> values) -> Status {
        LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                            published::TensorOf(weights, config.model, parameter));
        LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                            published::ReadTensor(folder, *tensor));
        published::Decode(*tensor, bytes, parameter.parameter, values);
        return absl::OkStatus();
      },
      CommunicatorsFor(stage));
}

// The mean cross-entropy of the batch, token by token.
double LossOf(Generator& generator, const StageOptions& options, const Stage::Input& input) {
  const size_t context = options.model.context;
  double sum = 0;
  for (size_t i = 0; i < input.tokens.size(); ++i) {
    if (i % context == 0) generator.Clear();
    const auto logits = generator.Next(input.tokens.subspan(i, 1));
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) return NAN;
    double all = 0;
    for (const float logit : *logits) all += std::exp(double{logit});
    sum += std::log(all) - (*logits)[static_cast<size_t>(input.targets[i])];
  }
  return sum / static_cast<double>(input.tokens.size());
}

class GroupExport : public ::testing::TestWithParam<Exported> {};

TEST_P(GroupExport, HasTheLossesOfTrainingsOwnEvaluation) {
  const StageOptions options = OptionsToExport(GetParam());
  auto stage = MakeWith(options, GetParam().ranks);
  ASSERT_TRUE(stage.ok()) << stage.status();
  Computed computed;
  RunStep(**stage, options, 1, &computed);
  const testing::TempDir folder;
  Export(options, (*stage)->Snapshot().value(), folder.path());
  const auto generator = Read(folder.path());
  ASSERT_TRUE(generator.ok()) << generator.status();
  for (const int salt : {3, 4}) {
    const Batch batch(options, salt);
    double evaluated = 0;
    ASSERT_TRUE((*stage)->Evaluate(Microbatch(0), batch.input(), &evaluated).ok());
    EXPECT_NEAR(LossOf(**generator, options, batch.input()), evaluated, 1e-5);
  }
  // More than the context, and what is no token.
  const std::vector<int32_t> many(options.model.context + 1, 1), wrong = {251};
  (*generator)->Clear();
  EXPECT_TRUE(absl::IsOutOfRange((*generator)->Next(many).status()));
  EXPECT_TRUE(absl::IsInvalidArgument((*generator)->Next(wrong).status()));
  EXPECT_TRUE((*generator)->Next(std::span(many).first(3)).ok());
}

INSTANTIATE_TEST_SUITE_P(Models, GroupExport,
                         ::testing::Values(Exported{ModelFamily::kLlama, 2, 0.5},
                                           Exported{ModelFamily::kLlama, 4, 0.25},
                                           Exported{ModelFamily::kGpt, 2, 0.5}));

}  // namespace
}  // namespace longhaul::worker
