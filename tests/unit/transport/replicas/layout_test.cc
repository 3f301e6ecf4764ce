#include "transport/replicas/layout.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "run/model/family.h"
#include "transport/replicas/parameters.h"

namespace longhaul::replicas {
namespace {

using ::testing::HasSubstr;

TEST(Layout, GivesEveryElementToOneOwnerAndAllAboutTheSame) {
  std::mt19937 random(1);
  for (int round = 0; round < 15; ++round) {
    std::vector<ReplicatedParameter> parameters;
    uint64_t total = 0, largest_uncut = kUnit;
    LayoutOptions options{.replicas = 1 + static_cast<uint32_t>(random() % 7),
                          .bucket_elements = 10'000 + random() % 50'000};
    options.gradients.form = GradientForm::kTagc;
    for (int k = 0; k < 20; ++k) {
      const bool whole = random() % 4 == 0;
      const uint64_t elements = 1 + random() % (whole ? 5'000 : 200'000);
      parameters.push_back({"p" + std::to_string(k), elements, random() % 2 == 0, whole});
      total += elements;
      if (whole || elements < kUnit * options.replicas) {
        largest_uncut = std::max(largest_uncut, elements);
      }
    }
    const auto layout = Layout::Make(parameters, options);
    ASSERT_TRUE(layout.ok()) << layout.status();
    std::vector<std::vector<int>> owners(parameters.size());
    for (size_t k = 0; k < parameters.size(); ++k) owners[k].resize(parameters[k].elements);
    for (const Bucket& bucket : layout->buckets()) {
      for (const Shard& shard : bucket.shards) {
        for (const auto* pieces : {&shard.dense, &shard.sparse}) {
          uint64_t at = 0;
          for (const Piece& piece : *pieces) {
            ASSERT_EQ(pieces == &shard.sparse, layout->IsSparse(piece.parameter));
            ASSERT_EQ(piece.at % 64, 0);
            ASSERT_GE(piece.at, at);
            at = piece.at + piece.count;
            for (uint64_t k = 0; k < piece.count; ++k) ++owners[piece.parameter][piece.first + k];
          }
        }
      }
    }
    uint64_t most = 0, least = total;
    for (uint32_t owner = 0; owner < options.replicas; ++owner) {
      most = std::max(most, layout->ElementsOf(owner));
      least = std::min(least, layout->ElementsOf(owner));
    }
    for (const auto& of_parameter : owners) {
      ASSERT_TRUE(std::ranges::all_of(of_parameter, [](int count) { return count == 1; }));
    }
    EXPECT_LE(most - least, 2 * largest_uncut + 2 * kUnit * options.replicas);
  }
}

TEST(Layout, HasAnotherFingerprintForWhateverMessagesDependOn) {
  const std::vector<ReplicatedParameter> parameters = {{"a", 5000, true}, {"b", 10}};
  const LayoutOptions options{.replicas = 2};
  const uint64_t own = Layout::Make(parameters, options)->fingerprint();
  EXPECT_EQ(Layout::Make(parameters, options)->fingerprint(), own);
  std::vector<uint64_t> others;
  for (const auto& other :
       {LayoutOptions{.replicas = 3}, LayoutOptions{.replicas = 2, .bucket_elements = 9999},
        LayoutOptions{.replicas = 2, .gradients = {.form = GradientForm::kBf16}},
        LayoutOptions{.replicas = 2, .parameters = ParameterForm::kBf16}}) {
    others.push_back(Layout::Make(parameters, other)->fingerprint());
  }
  for (const auto& other :
       std::vector<std::vector<ReplicatedParameter>>{{{"a", 5001, true}, {"b", 10}},
                                                     {{"a", 5000}, {"b", 10}},
                                                     {{"b", 10}, {"a", 5000, true}}}) {
    others.push_back(Layout::Make(other, options)->fingerprint());
  }
  for (const uint64_t other : others) EXPECT_NE(other, own);
}

TEST(Layout, RefusesWhatCannotBe) {
  const auto refusal = [](std::vector<ReplicatedParameter> parameters,
                          const LayoutOptions& options) {
    return std::string(Layout::Make(std::move(parameters), options).status().message());
  };
  EXPECT_THAT(refusal({}, {.replicas = 0}), HasSubstr("from 1 to 64 replicas, not 0"));
  EXPECT_THAT(refusal({{"a", 3}, {"a", 4}}, {}), HasSubstr("'a' is given twice"));
  EXPECT_THAT(refusal({{"a", 0}}, {}), HasSubstr("'a' has no elements"));
  EXPECT_THAT(refusal({{"a", kMostBucketElements + 1, false, true}}, {}),
              HasSubstr("must have one owner"));
  EXPECT_THAT(refusal({{"a", 1}}, {.bucket_elements = 1}), HasSubstr("a bucket has from 2048"));
}

// GPT-2's sparse parameters are embeddings, head, the attention's output and the MLP; not queries,
// keys, values, norms and biases.
TEST(ReplicatedParameters, MayBeSparseAsTheirFamilySays) {
  for (const model::Preset& preset : model::Presets()) {
    const auto placed = model::ParametersOf(
        preset.model, *preset.model.vocabulary,
        model::Part{.layers = preset.model.layers, .embedding = true, .head = true});
    const auto parameters = ReplicatedParameters(placed, /*whole_matrices=*/false);
    int sparse = 0;
    for (const ReplicatedParameter& parameter : parameters) {
      const auto has = [&](std::string_view part) {
        return parameter.name.find(part) != std::string::npos;
      };
      const bool attention = has("qkv") || has("q_proj") || has("k_proj") || has("v_proj");
      const bool vector = has("norm") || has("bias") || has("ln_");
      EXPECT_EQ(parameter.may_be_sparse, !attention && !vector) << preset.name << parameter.name;
      sparse += parameter.may_be_sparse ? 1 : 0;
    }
    EXPECT_GT(sparse, 0) << preset.name;
    const auto whole = ReplicatedParameters(placed, /*whole_matrices=*/true);
    EXPECT_TRUE(std::ranges::any_of(whole, [](const auto& parameter) { return parameter.whole; }));
  }
}

}  // namespace
}  // namespace longhaul::replicas
