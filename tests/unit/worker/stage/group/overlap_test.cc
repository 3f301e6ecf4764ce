#include "worker/stage/group/overlap.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/parity/worker/small_model.h"
#include "tests/unit/worker/stage/group/lone_rank.h"
#include "worker/stage/model/model.h"
#include "worker/stage/passes/microbatch_pass.h"

namespace longhaul::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Overlap, RunsWhatWasDeferredBesideTheNextExchange) {
  Overlap overlap(/*host_waits=*/false);
  std::vector<std::string> order;
  const auto defer = [&](const char* what) {
    overlap.Defer([&order, what] { order.emplace_back(what); });
  };
  const auto exchange = [&] {
    order.emplace_back("exchange");
    return at::ones({1});
  };
  defer("a");
  defer("b");
  EXPECT_THAT(order, IsEmpty());
  EXPECT_EQ(overlap.Exchange(at::kCPU, exchange).item<float>(), 1);
  EXPECT_THAT(order, ElementsAre("exchange", "a", "b"));
  overlap.Exchange(at::kCPU, exchange);
  EXPECT_THAT(order, ElementsAre("exchange", "a", "b", "exchange"));
  defer("c");
  overlap.RunDeferred();
  overlap.RunDeferred();
  EXPECT_THAT(order, ElementsAre("exchange", "a", "b", "exchange", "c"));
}

struct KindOfGroup {
  std::string name;
  ModelFamily family = ModelFamily::kLlama;
  bool sequence = false;
  int64_t shared_channels = 64;
};
class Deferring : public ::testing::TestWithParam<KindOfGroup> {};

// For each sum of gradients in a backward: the products whose parameters have no gradient yet while
// those of later layers have theirs.
std::vector<std::set<std::string>> WithoutGradientAtSums(const KindOfGroup& kind) {
  StageOptions options;
  options.model = testing::SmallModelOf(kind.family);
  options.model.layers = options.layers = 1;
  options.model.qkv_bias = false;
  options.train.microbatch_size = 1;
  options.group.sequence = kind.sequence;

  const Model* watched = nullptr;
  std::vector<std::set<std::string>> at_sums;
  const RankGroup group = testing::GroupOfOne(
      {.sequence = kind.sequence,
       .hidden = options.model.hidden,
       .shared_channels = kind.shared_channels},
      [&] {
        std::set<std::string>& names = at_sums.emplace_back();
        for (const Parameter& parameter : watched->parameters()) {
          if (parameter.block_matrices == 0 && parameter.name != "lm_head.weight") continue;
          if (!parameter.value.grad().defined()) names.insert(parameter.name);
        }
      });
  const std::unique_ptr<Model> model = Model::Create(options, &group);
  watched = model.get();
  MicrobatchPasses passes(options, *model);
  std::vector<int32_t> ids(options.model.context);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % 251);
  const at::Tensor tokens = at::tensor(ids, at::kInt).unsqueeze(0);
  const PassInput input = {.source = tokens, .targets = tokens};
  const auto pass = passes.Take(input);
  pass->Forward(input);
  pass->Backward({});
  for (const Parameter& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.value.grad().defined()) << parameter.name;
  }
  return at_sums;
}

TEST_P(Deferring, WeightGradientsWaitForTheSumOfTheirInputsGradient) {
  const bool gpt = GetParam().family == ModelFamily::kGpt;
  const std::string block = gpt ? "h.0." : "model.layers.0.";
  const std::set<std::string> entering_attention =
      gpt ? std::set{block + "attn.qkv.weight"}
          : std::set{block + "self_attn.q_proj.weight", block + "self_attn.k_proj.weight",
                     block + "self_attn.v_proj.weight"};
  const std::set<std::string> entering_mlp =
      gpt ? std::set{block + "mlp.fc.weight"}
          : std::set{block + "mlp.gate_proj.weight", block + "mlp.up_proj.weight"};
  // Backward comes to the head first.
  std::set<std::string> at_mlp = entering_attention;
  at_mlp.insert(block + (gpt ? "attn.proj.weight" : "self_attn.o_proj.weight"));
  at_mlp.insert(entering_mlp.begin(), entering_mlp.end());
  std::set<std::string> at_head = at_mlp;
  at_head.insert(block + (gpt ? "mlp.proj.weight" : "mlp.down_proj.weight"));
  at_head.insert("lm_head.weight");
  EXPECT_THAT(WithoutGradientAtSums(GetParam()), ElementsAre(at_head, at_mlp, entering_attention));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Deferring,
    ::testing::Values(KindOfGroup{"gpt", ModelFamily::kGpt},
                      KindOfGroup{"gpt_sequence", ModelFamily::kGpt, true}, KindOfGroup{"llama"},
                      KindOfGroup{"llama_sequence", ModelFamily::kLlama, true},
                      KindOfGroup{"llama_partial", ModelFamily::kLlama, false, 32}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace longhaul::worker
