// What config.json says of rotary embeddings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "run/published/config.h"
#include "tests/unit/run/published/config_fixtures.h"

namespace longhaul::published {
namespace {

using ::testing::HasSubstr;

TEST(ParseConfig, LayersWithoutRotaryEmbeddingsComeAtEqualSteps) {
  const auto with = [](Json list) {
    return With("smollm3", {{"no_rope_layers", std::move(list)}});
  };
  const auto every = [](const std::string& config) { return MustParse(config).model.nope_every; };
  EXPECT_EQ(OfFixture("smollm3").nope_every, 2u);
  EXPECT_EQ(every(with(nullptr)), 2u);  // the interval says it
  EXPECT_EQ(every(with(Json::array({1, 1, 0}))), 3u);
  EXPECT_EQ(every(with(Json::array({0, 0, 0}))), 1u);
  EXPECT_EQ(every(with(Json::array({1, 1, 1}))), 0u);
  // transformers' default
  EXPECT_EQ(every(Without("smollm3", {"no_rope_layers", "no_rope_layer_interval"})), 4u);
  EXPECT_THAT(Refusal(with(Json::array({0, 1, 1}))),
              HasSubstr("here it is layer 1, and layer 2 breaks that"));
  EXPECT_THAT(Refusal(with(Json::array({1, 0}))), HasSubstr("expected a list of 3 numbers 0 or 1"));
}

TEST(ParseConfig, OlderAndNewerNamesOfRopeAreTheSame) {
  const auto older = [](const Json& scaling, const char* type) {
    Json json = Json::parse(Without("llama3", {"rope_parameters"}));
    json["rope_theta"] = 100;
    json["rope_scaling"] = scaling;
    json["rope_scaling"][type] = "llama3";
    return json.dump();
  };
  const Json scaling = {{"factor", 4.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4},
                        {"original_max_position_embeddings", 32}};
  EXPECT_EQ(MustParse(older(scaling, "rope_type")).model, OfFixture("llama3"));
  EXPECT_EQ(MustParse(older(scaling, "type")).model, OfFixture("llama3"));
  // transformers takes the longest context then.
  Json without = scaling;
  without.erase("original_max_position_embeddings");
  EXPECT_EQ(MustParse(older(without, "type")).model.rope_original_context, 128u);

  ModelSpec linear = OfFixture("llama2");
  linear.rope_scaling = RopeScaling::kLinear;
  linear.rope_factor = 2.5;
  linear.rope_theta = 5e5;
  const Json parameters = {{"rope_type", "linear"}, {"factor", 2.5}, {"rope_theta", 5e5}};
  EXPECT_EQ(MustParse(With("llama2", {{"rope_parameters", parameters}})).model, linear);
  EXPECT_EQ(MustParse(With("llama2", {{"rope_parameters", nullptr},
                                      {"rope_theta", 5e5},
                                      {"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}}))
                .model,
            linear);
  // Where both are there, transformers reads the older one; an empty one counts for nothing.
  EXPECT_EQ(MustParse(With("llama2", {{"rope_scaling", parameters}})).model, linear);
  EXPECT_EQ(
      MustParse(With("llama2", {{"rope_parameters", parameters}, {"rope_scaling", Json::object()}}))
          .model,
      linear);
  // The base inside counts more than that beside it.
  EXPECT_EQ(MustParse(With("llama2", {{"rope_theta", 7}})).model, OfFixture("llama2"));
  EXPECT_EQ(
      MustParse(With("llama2", {{"rope_theta", 7}, {"rope_parameters", nullptr}})).model.rope_theta,
      7);
}

TEST(ParseConfig, YarnAsTransformersReadsIt) {
  const auto with = [](const Json& more) {
    Json yarn = {{"type", "yarn"}, {"factor", 4.0}};
    yarn.update(more);
    return MustParse(With("llama2", {{"rope_scaling", yarn}})).model;
  };
  EXPECT_EQ(with(Json::object()).rope_original_context, 32u);  // max_position_embeddings
  EXPECT_EQ(with({{"original_max_position_embeddings", 8}}).rope_original_context, 8u);
  EXPECT_EQ(with({{"beta_fast", 0}, {"beta_slow", nullptr}}).rope_beta_fast, 32);
  EXPECT_FALSE(with({{"truncate", false}}).rope_whole_pairs);
  EXPECT_EQ(with({{"attention_factor", 1.5}}).rope_attention_factor, 1.5);
  EXPECT_EQ(with({{"mscale", 1.0}}).rope_attention_factor, 0);  // one alone says nothing
  EXPECT_NEAR(with({{"mscale", 1.0}, {"mscale_all_dim", 0.5}}).rope_attention_factor,
              (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1), 1e-12);
  // The context before the stretching, where the file says it at its top level, wins.
  Json top = Json::parse(With(
      "llama2",
      {{"original_max_position_embeddings", 16},
       {"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 8}}}}));
  EXPECT_EQ(MustParse(top.dump()).model.rope_original_context, 16u);
  EXPECT_EQ(MustParse(top.dump()).model.rope_factor, 2);
}

TEST(ParseConfig, OlderPhi3HasOtherNamesOfLongrope) {
  Json older = Json::parse(Without("phi3_long", {"rope_parameters"}));
  older["rope_theta"] = 1e4;
  older["partial_rotary_factor"] = 0.5;
  for (const char* const type : {"su", "yarn", "longrope"}) {
    older["rope_scaling"] = {
        {"type", type}, {"short_factor", {1.0, 1.25}}, {"long_factor", {1.5, 4.0}}};
    EXPECT_EQ(MustParse(older.dump()).model, OfFixture("phi3_long")) << type;
  }
}

// Abridged: what the Hub's file says, with a third of the factors.
TEST(ParseConfig, Phi4MiniOfTheHub) {
  const std::string file = R"({
    "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
                 "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
                 "AutoTokenizer": "Xenova/gpt-4o"},
    "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1,
    "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3",
    "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8, "head_dim": 40,
    "original_max_position_embeddings": 4096, "pad_token_id": 199999,
    "partial_rotary_factor": 0.8, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": {"long_factor": [1,1.1,1.2,1.3,1.5,1.6,1.7,1.8,2.1,2.5,2.8,3.1,3.5,4.1,5.1,6.1],
                     "short_factor": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], "type": "longrope"},
    "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true,
    "vocab_size": 200064})";
  const ModelSpec model = MustParse(file).model;
  EXPECT_EQ(model.rotary_channels, 32u);
  EXPECT_EQ(model.rope_factor, 32);
  EXPECT_EQ(model.window, 262144u);
  Json other = Json::parse(file);
  other["auto_map"]["AutoModelForCausalLM"] = "modeling_other.Phi3ForCausalLM";
  EXPECT_THAT(Refusal(other.dump()), HasSubstr("the model is computed by code of its own"));
}

TEST(ParseConfig, OlderGemma3HasTheBasesSideBySide) {
  Json older = Json::parse(Without("gemma3", {"rope_parameters"}));
  older["rope_theta"] = 1e4;
  older["rope_local_base_freq"] = 100;
  older["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(MustParse(older.dump()).model, OfFixture("gemma3"));
  older.erase("rope_local_base_freq");
  older.erase("rope_theta");
  EXPECT_EQ(MustParse(older.dump()).model.rope_theta, 1e6);
  EXPECT_EQ(MustParse(older.dump()).model.rope_theta_windowed, 1e4);
}

TEST(ParseConfig, RopesThatAreRefused) {
  const auto refusal = [](const Json& parameters) {
    return Refusal(With("llama2", {{"rope_parameters", parameters}}));
  };
  EXPECT_EQ(refusal({{"rope_type", "proportional"}, {"factor", 2}}),
            "config.json: rope_parameters: got the type \"proportional\", and longhaul computes "
            "only default, linear, llama3, yarn, dynamic and longrope");
  EXPECT_THAT(refusal({{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", 3}}),
              HasSubstr("rope_parameters.long_factor: expected a list of numbers, got 3"));
  EXPECT_THAT(refusal({{"rope_type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}),
              HasSubstr("model.rope_short_factors: expected 4 numbers, one for each pair"));
  EXPECT_THAT(refusal(3), HasSubstr("rope_parameters: expected an object, got 3"));
  EXPECT_THAT(refusal({{"rope_type", "default"}, {"attention_factor", 2}}),
              HasSubstr("rope_parameters.attention_factor: longhaul does not know this key"));
  EXPECT_THAT(refusal({{"full_attention", {{"rope_type", "default"}}}}),
              HasSubstr("rope_parameters.full_attention: longhaul does not know this key"));
  EXPECT_THAT(refusal({{"partial_rotary_factor", 0.5}}),
              HasSubstr("rope_parameters.partial_rotary_factor: got 0.5"));
  EXPECT_THAT(
      refusal({{"rope_type", "linear"}}),
      HasSubstr("rope_parameters.factor: expected a number above 0, but the key is missin"));
  EXPECT_THAT(refusal({{"rope_theta", "much"}}),
              HasSubstr("rope_parameters.rope_theta: expected a number above 0, got \"much\""));
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", -1},
                       {"low_freq_factor", 0},
                       {"original_max_position_embeddings", 8192.5}};
  EXPECT_EQ(refusal(llama3),
            "config.json: rope_parameters.factor: expected a number above 0, got -1\n"
            "config.json: rope_parameters.low_freq_factor: expected a number above 0, got 0\n"
            "config.json: rope_parameters.high_freq_factor: expected a number above 0, but the key "
            "is missing\n"
            "config.json: rope_parameters.original_max_position_embeddings: expected a whole "
            "number from 1 to 4194304, got 8192.5");
  EXPECT_THAT(refusal({{"rope_type", "llama3"},
                       {"factor", 2},
                       {"low_freq_factor", 4},
                       {"high_freq_factor", 4}}),
              HasSubstr("model.rope_high_frequency: expected more than"));
}

}  // namespace
}  // namespace longhaul::published
