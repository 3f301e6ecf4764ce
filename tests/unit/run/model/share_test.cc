#include "run/model/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "run/model/family.h"

namespace longhaul::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 8 heads, of 4 channels each; in families llama and moe 4 of keys and values.
ModelSpec Eight(ModelFamily family) {
  ModelSpec spec;
  spec.family = family;
  spec.layers = 2;
  spec.hidden = 32;
  spec.heads = 8;
  spec.kv_heads = family == ModelFamily::kGpt ? 0 : 4;
  spec.context = 10;
  spec.intermediate = 48;
  spec.qkv_bias = true;
  spec.experts = 4;
  spec.experts_per_token = 2;
  spec.expert_intermediate = 16;
  return spec;
}

constexpr uint32_t kVocabulary = 257;  // no number of ranks divides it

Parameter Find(const ModelSpec& spec, std::string_view name) {
  for (const Parameter& parameter : FamilyOf(spec).parameters(spec, kVocabulary)) {
    if (parameter.name == name) return parameter;
  }
  ADD_FAILURE() << name;
  return {};
}

Share ShareOfName(const ModelSpec& spec, std::string_view name, uint32_t rank, uint32_t ranks) {
  const auto share = ShareOf(spec, Find(spec, name), rank, {.count = ranks});
  EXPECT_TRUE(share.ok()) << share.status();
  return share.ok() ? *share : Share{};
}

std::string ErrorOf(const ModelSpec& spec, std::string_view name, uint32_t ranks) {
  return std::string(Message(ShareOf(spec, Find(spec, name), 0, {.count = ranks}).status()));
}

uint32_t Size(const Share& share) {
  uint32_t size = 0;
  for (const Range& range : share.ranges) size += range.end - range.begin;
  return size;
}

TEST(ShareOf, RanksTogetherHoldEveryRowAsOftenAsTheyAgreeOn) {
  for (const Family* family : Families()) {
    const ModelSpec spec = Eight(family->id);
    for (const Parameter& parameter : family->parameters(spec, kVocabulary)) {
      const bool columns = parameter.split.along == Along::kColumns;
      for (const uint32_t ranks : {1u, 2u, 4u, 8u}) {
        std::vector<uint32_t> held(columns ? parameter.shape.columns : parameter.shape.rows);
        std::vector<uint32_t> sizes;
        uint32_t holders = 0;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          const auto share = ShareOf(spec, parameter, rank, {.count = ranks});
          ASSERT_TRUE(share.ok()) << share.status();
          for (const Range& range : share->ranges) {
            ASSERT_LE(range.end, held.size()) << parameter.name;
            ASSERT_LT(range.begin, range.end) << parameter.name;
            for (uint32_t i = range.begin; i < range.end; ++i) ++held[i];
          }
          holders = share->holders;
          sizes.push_back(Size(*share));
        }
        EXPECT_THAT(held, Each(holders)) << parameter.name << " over " << ranks;
        const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
        const uint32_t uneven = parameter.split.unit == Unit::kToken ? 1 : 0;
        EXPECT_LE(*most - *least, uneven) << parameter.name << " over " << ranks;
        const bool whole =
            parameter.split.along == Along::kNothing || parameter.split.along == Along::kExperts;
        const bool repeated = parameter.split.unit == Unit::kKvHead && ranks == 8;
        EXPECT_EQ(holders, whole ? ranks : repeated ? 2 : 1) << parameter.name;
      }
    }
  }
}

TEST(ShareOf, EveryExpertIsOnNeighboursThatHaveTheSamePart) {
  const ModelSpec spec = Eight(ModelFamily::kMoe);  // 4 experts
  const auto holders = [&spec](uint32_t expert, const Ranks& ranks) {
    const std::string name =
        "model.layers.#.mlp.experts." + std::to_string(expert) + ".up_proj.weight";
    std::vector<uint32_t> have;
    for (uint32_t rank = 0; rank < ranks.count; ++rank) {
      const auto share = ShareOf(spec, Find(spec, name), rank, ranks);
      EXPECT_TRUE(share.ok()) << share.status();
      EXPECT_EQ(share->holders, ranks.count / ranks.experts);
      if (!share->ranges.empty()) have.push_back(rank);
    }
    return have;
  };
  EXPECT_THAT(holders(0, {.count = 4, .experts = 2}), ElementsAre(0, 1));
  EXPECT_THAT(holders(1, {.count = 4, .experts = 2}), ElementsAre(0, 1));
  EXPECT_THAT(holders(2, {.count = 4, .experts = 2}), ElementsAre(2, 3));
  EXPECT_THAT(holders(3, {.count = 4, .experts = 4}), ElementsAre(3));
  EXPECT_THAT(holders(3, {.count = 4, .experts = 1}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Message(ShareOf(spec, Find(spec, "model.layers.#.mlp.experts.0.up_proj.weight"), 0,
                              {.count = 6, .experts = 3})
                          .status()),
              HasSubstr("divides both the 4 experts of a block and the 6 ranks"));
}

// Element by element, where a share is a matrix's rows or columns.
TEST(StretchesOf, HaveTheElementsOfAShareInItsOrder) {
  for (const Family* family : Families()) {
    const ModelSpec spec = Eight(family->id);
    for (const Parameter& parameter : family->parameters(spec, kVocabulary)) {
      const uint32_t columns = std::max(parameter.shape.columns, 1u);
      for (const uint32_t ranks : {1u, 2u, 8u}) {
        const auto share = ShareOf(spec, parameter, ranks - 1, {.count = ranks});
        ASSERT_TRUE(share.ok()) << share.status();
        const auto has = [&](uint32_t place) {
          return std::ranges::any_of(share->ranges, [&](const Range& range) {
            return range.begin <= place && place < range.end;
          });
        };
        std::vector<uint64_t> expected, got;
        for (uint32_t row = 0; row < parameter.shape.rows; ++row) {
          for (uint32_t column = 0; column < columns; ++column) {
            const bool in_share = has(parameter.split.along == Along::kColumns ? column : row);
            if (in_share) expected.push_back(uint64_t{row} * columns + column);
          }
        }
        for (const auto& [first, count] : StretchesOf(parameter, *share)) {
          for (uint64_t i = 0; i < count; ++i) got.push_back(first + i);
        }
        EXPECT_EQ(got, expected) << parameter.name << " over " << ranks;
      }
    }
  }
}

// What a rank computes it can use: its heads of queries read its heads of keys, and its columns of
// the projection read what its heads give; so with the MLP.
TEST(ShareOf, ARankReadsWhatItComputes) {
  const ModelSpec llama = Eight(ModelFamily::kLlama), gpt = Eight(ModelFamily::kGpt);
  const std::string attention = "model.layers.#.self_attn.", mlp = "model.layers.#.mlp.";
  constexpr uint32_t kChannels = 4, kQueriesToAHeadOfKeys = 2;
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto of = [&](const ModelSpec& spec, const std::string& name) {
        return ShareOfName(spec, name, rank, ranks).ranges;
      };
      const Range queries = of(llama, attention + "q_proj.weight").at(0);
      const Range keys = of(llama, attention + "k_proj.weight").at(0);
      EXPECT_EQ(queries.begin / kChannels / kQueriesToAHeadOfKeys, keys.begin / kChannels);
      EXPECT_EQ((queries.end - 1) / kChannels / kQueriesToAHeadOfKeys, (keys.end - 1) / kChannels);
      EXPECT_THAT(of(llama, attention + "o_proj.weight"), ElementsAre(queries));
      EXPECT_THAT(of(llama, attention + "q_proj.bias"), ElementsAre(queries));
      EXPECT_THAT(of(llama, attention + "v_proj.weight"), ElementsAre(keys));
      EXPECT_EQ(of(llama, mlp + "gate_proj.weight"), of(llama, mlp + "down_proj.weight"));
      EXPECT_EQ(of(llama, mlp + "up_proj.weight"), of(llama, mlp + "down_proj.weight"));

      const Range heads = of(gpt, "h.#.attn.proj.weight").at(0);
      EXPECT_THAT(of(gpt, "h.#.attn.qkv.weight"),
                  ElementsAre(heads, Range{32 + heads.begin, 32 + heads.end},
                              Range{64 + heads.begin, 64 + heads.end}));
      EXPECT_EQ(of(gpt, "h.#.attn.qkv.bias"), of(gpt, "h.#.attn.qkv.weight"));
      EXPECT_EQ(of(gpt, "h.#.mlp.fc.weight"), of(gpt, "h.#.mlp.proj.weight"));
      EXPECT_EQ(of(gpt, "h.#.mlp.fc.bias"), of(gpt, "h.#.mlp.fc.weight"));
      EXPECT_EQ(of(gpt, "wte"), of(gpt, "lm_head.weight"));
    }
  }
}

// Heads of queries and keys are cut by their own channels, whatever hidden is; their norms are
// whole.
TEST(ShareOf, HeadsOfTheirOwnChannels) {
  ModelSpec spec = Eight(ModelFamily::kLlama);
  spec.qk_norm = true;
  spec.head_channels = 6;  // 48 of queries, and hidden has 32
  const std::string attention = "model.layers.#.self_attn.";
  for (const uint32_t ranks : {1u, 2u, 4u, 8u}) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto of = [&](const std::string& name) {
        return ShareOfName(spec, attention + name, rank, ranks);
      };
      const Range queries{rank * 48 / ranks, (rank + 1) * 48 / ranks};
      EXPECT_THAT(of("q_proj.weight").ranges, ElementsAre(queries));
      EXPECT_THAT(of("q_proj.bias").ranges, ElementsAre(queries));
      EXPECT_THAT(of("o_proj.weight").ranges, ElementsAre(queries));
      const uint32_t first = rank * 4 / ranks * 6, held = std::max(4 / ranks, 1u) * 6;
      EXPECT_THAT(of("k_proj.weight").ranges, ElementsAre(Range{first, first + held}));
      EXPECT_EQ(of("k_proj.weight").holders, ranks == 8 ? 2u : 1u);
      for (const std::string norm : {"q_norm.weight", "k_norm.weight"}) {
        EXPECT_THAT(of(norm).ranges, ElementsAre(Range{0, 6}));
        EXPECT_EQ(of(norm).holders, ranks);
      }
    }
  }
}

TEST(ShareOf, KnownRanges) {
  const ModelSpec gpt = Eight(ModelFamily::kGpt), llama = Eight(ModelFamily::kLlama);
  EXPECT_THAT(ShareOfName(gpt, "h.#.attn.qkv.weight", 1, 4).ranges,
              ElementsAre(Range{8, 16}, Range{40, 48}, Range{72, 80}));
  EXPECT_THAT(ShareOfName(gpt, "wte", 1, 2).ranges, ElementsAre(Range{128, 257}));
  EXPECT_THAT(ShareOfName(gpt, "h.#.mlp.proj.bias", 1, 2).ranges, ElementsAre(Range{0, 32}));
  EXPECT_THAT(ShareOfName(llama, "model.layers.#.self_attn.k_proj.weight", 5, 8).ranges,
              ElementsAre(Range{8, 12}));
}

TEST(ShareOf, RefusesGroupsThatCannotShareEvenly) {
  ModelSpec xl = Eight(ModelFamily::kGpt);
  xl.heads = 25;
  xl.hidden = 100;
  EXPECT_EQ(ErrorOf(xl, "h.#.attn.qkv.weight", 2),
            "h.#.attn.qkv.weight: expected a number of ranks that divides its 25 heads, got 2; "
            "choose another size of the group");
  EXPECT_EQ(ErrorOf(xl, "h.#.attn.proj.weight", 32),
            "h.#.attn.proj.weight: expected at most 25 ranks, as it has so many heads, got 32; "
            "choose a smaller group");
  const ModelSpec llama = Eight(ModelFamily::kLlama);
  EXPECT_EQ(ErrorOf(llama, "model.layers.#.self_attn.k_proj.weight", 6),
            "model.layers.#.self_attn.k_proj.weight: expected a number of ranks that is a multiple "
            "of its 4 heads of keys and values, got 6; choose another size of the group");
  EXPECT_EQ(ErrorOf(llama, "model.layers.#.mlp.up_proj.weight", 5),
            "model.layers.#.mlp.up_proj.weight: expected a number of ranks that divides its 48 "
            "channels, got 5; choose another size of the group");
}

TEST(PartsOfExperts, DivideRanksAndExperts) {
  ModelSpec moe = Eight(ModelFamily::kMoe);
  moe.experts = 12;
  EXPECT_THAT(PartsOfExperts(moe, 1), ElementsAre(1));
  EXPECT_THAT(PartsOfExperts(moe, 8), ElementsAre(1, 2, 4));
  EXPECT_THAT(PartsOfExperts(moe, 5), ElementsAre(1));
  EXPECT_THAT(PartsOfExperts(moe, 24), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(PartsOfExperts(Eight(ModelFamily::kLlama), 8), ElementsAre(1));
  // Exactly these parameters have shares.
  for (const Parameter& parameter : FamilyOf(moe).parameters(moe, kVocabulary)) {
    if (parameter.split.along != Along::kExperts) continue;
    for (uint32_t parts = 1; parts <= 24; ++parts) {
      const std::vector<uint32_t> allowed = PartsOfExperts(moe, 24);
      EXPECT_EQ(ShareOf(moe, parameter, 0, {.count = 24, .experts = parts}).ok(),
                std::ranges::find(allowed, parts) != allowed.end());
    }
  }
}

}  // namespace
}  // namespace longhaul::model
