// What a run file says, and how it is written again.
#include "run/file/run_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "tests/unit/run/file/run_texts.h"

namespace longhaul {
namespace {

TEST(RunSpec, DefaultsAreThoseOfTheHeader) {
  const auto spec = ParseRunSpec(kMinimal, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  RunSpec expected;
  expected.name = "tiny-wan";
  expected.model.layers = 8;
  expected.model.hidden = 256;
  expected.model.heads = 8;
  expected.model.context = 256;
  expected.data.text = {"corpus/*.txt"};
  expected.train.steps = 200;
  expected.train.microbatches = 16;
  expected.train.dtype = ComputeDtype::kAuto;  // which nobody computes in
  EXPECT_EQ(*spec, expected);
  EXPECT_EQ(spec->TokensPerStep(), 16u * 256u);
}

TEST(RunSpec, ReadsEveryKey) {
  const auto spec = ParseRunSpec(kEveryKey, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->model.tied);
  EXPECT_EQ(spec->data.text, (std::vector<std::string>{"corpus/*.txt", "a \"b\\.txt"}));
  EXPECT_EQ(spec->data.seed, UINT64_MAX);
  EXPECT_EQ(spec->validation, (ValidationSpec{0.1, 7, 9, CleanValidation::kAlways, true}));
  EXPECT_EQ(spec->train.microbatch_size, 3u);
  EXPECT_EQ(spec->train.dtype, ComputeDtype::kBf16);
  EXPECT_EQ(spec->train.seed, 5u);
  EXPECT_TRUE(spec->train.deterministic);
  EXPECT_EQ(spec->train.on_nonfinite, OnNonfinite::kSkip);
  EXPECT_EQ(spec->train.optimizer, (OptimizerSpec{OptimizerKind::kMuon, 1.2345678901234567e-3, 0.8,
                                                  0.97, 1e-6, 0.3, 0, 0.9, MomentDtype::kBf16}));
  EXPECT_EQ(spec->train.schedule, (LrScheduleSpec{LrScheduleKind::kWsd, 12, 0.25, 0.3}));
  EXPECT_EQ(spec->pipeline, (PipelineSpec{1, ScheduleKind::kOneFOneB, SendOrder::kAsReady,
                                          Recompute::kStage, 2, 4, 16}));
  EXPECT_EQ(spec->links.codecs, (CodecPair{"none", "fixed:bits=6"}));
  EXPECT_FALSE(spec->links.measure);
  ASSERT_EQ(spec->links.by_worker.size(), 2u);
  EXPECT_EQ(spec->links.by_worker[0].first, "worker2");
  EXPECT_EQ(spec->links.by_worker[0].second,
            (LinkException{{"tah", "fixed:bits=6"}, std::nullopt}));
  EXPECT_EQ(spec->links.by_worker[1].second,
            (LinkException{{"none", "bf16"}, TransportKind::kGrpc}));
  EXPECT_EQ(spec->transport, TransportKind::kUcx);
  EXPECT_EQ(spec->checkpoint, (CheckpointSpec{5, 3, true, false}));
  EXPECT_EQ(spec->recovery, (RecoverySpec{7, 12, /*every_between_hosts=*/false, 2}));
  EXPECT_EQ(spec->peer_timeout, absl::Milliseconds(2500));
  EXPECT_EQ(spec->session_timeout, absl::Seconds(5));
  EXPECT_EQ(spec->reattach_timeout, absl::Seconds(90));
}

TEST(RunSpec, LeavesCodecsToThePlanWithinAnError) {
  const std::string file = std::string(kMinimal) + "links: { forward: auto, error: 0.05 }\n";
  const auto spec = ParseRunSpec(file, "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->links.HasAutoCodecs());
  EXPECT_TRUE(IsAuto(spec->links.codecs.forward));
  EXPECT_EQ(spec->links.error, 0.05);
  RunSpec settled = *spec;
  settled.links.chosen.assign(2, {CodecPair{"tah", "none"}, CodecPair{"none", "bf16"}});
  for (const RunSpec& one : {*spec, settled}) {
    const auto again = ParseRunSpec(ToYaml(one), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, one);
  }
  const auto none = ParseRunSpec(
      std::string(kMinimal) + "links: { forward: none, backward: none, error: 0.05 }\n", "run.yaml",
      {});
  EXPECT_NE(
      Message(none.status()).find("links.error: no codec is left to the plan; set links.forward"),
      std::string_view::npos);
  const auto left_out = ParseRunSpec(kMinimal, "run.yaml", {});
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_EQ(left_out->links.codecs, (CodecPair{"auto", "auto"}));
  EXPECT_EQ(left_out->links.error, std::nullopt);
  const auto large = ParseRunSpec(file, "run.yaml", {"links.error=2"});
  EXPECT_NE(Message(large.status()).find("links.error: expected"), std::string_view::npos);
}

TEST(RunSpec, EpochsStandForStepsUntilTheDataAreCounted) {
  std::string file(kMinimal);
  const size_t at = file.find("steps:");
  ASSERT_NE(at, std::string::npos);
  std::string by_epochs = file;
  by_epochs.replace(at, 6, "epochs:");
  const auto open = ParseRunSpec(by_epochs, "run.yaml", {});
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_TRUE(open->train.epochs.has_value());
  EXPECT_EQ(open->train.steps, kMostSteps);
  EXPECT_EQ(ToYaml(*open).find("\n  steps:"), std::string::npos) << ToYaml(*open);
  EXPECT_EQ(ParseRunSpec(ToYaml(*open), "again.yaml", {}).value(), *open);
  const auto settled = ParseRunSpec(by_epochs, "run.yaml", {"train.steps=7"});
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_EQ(settled->train.steps, 7u);
  const auto again = ParseRunSpec(ToYaml(*settled), "again.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *settled);
}

TEST(RunSpec, ToYamlRoundTrips) {
  for (const std::string_view yaml : {kMinimal, kEveryKey}) {
    const auto spec = ParseRunSpec(yaml, "run.yaml", {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    const std::string text = ToYaml(*spec);
    const auto again = ParseRunSpec(text, "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    EXPECT_EQ(*again, *spec) << text;
    EXPECT_EQ(ToYaml(*again), text);
  }
}

TEST(RunSpec, ActivationsFirstNeedsAllMicrobatchesInFlight) {
  const auto with = [](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {"pipeline.send_order=activations-first"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return ErrorOf(kMinimal, all);
  };
  EXPECT_EQ(with({}), "no error");
  EXPECT_EQ(with({"pipeline.depth=16"}), "no error");
  EXPECT_NE(with({"pipeline.depth=15"}).find("needs all 16 microbatches in flight"),
            std::string::npos);
  EXPECT_NE(with({"pipeline.schedule=1f1b"}).find("needs all 16 microbatches in flight"),
            std::string::npos);
}

TEST(RunSpec, RunsWithWeightsValidateBeforeTheirFirstStep) {
  const auto at_start = [](const std::vector<std::string>& overrides) {
    const auto spec = ParseRunSpec(kMinimal, "run.yaml", overrides);
    EXPECT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(ParseRunSpec(ToYaml(*spec), "again.yaml", {})->validation, spec->validation);
    return spec->validation.at_start;
  };
  EXPECT_FALSE(at_start({}));
  EXPECT_TRUE(at_start({"validation.at_start=true"}));
  EXPECT_TRUE(at_start({"model.from=folder"}));
  EXPECT_FALSE(at_start({"model.from=folder", "validation.at_start=false"}));
  EXPECT_FALSE(at_start({"model.from=folder", "validation.every=0"}));
  EXPECT_EQ(ErrorOf(kMinimal, {"validation.every=0", "validation.at_start=true"}),
            "--set validation.at_start=true: validation.at_start: validation.every 0 turns all "
            "validation off; raise it or leave at_start out");
}

TEST(RunSpec, ARunOfNoStepsValidatesWeights) {
  EXPECT_EQ(ErrorOf(kMinimal, {"train.steps=0", "model.from=folder", "train.schedule.warmup=5"}),
            "no error");
  EXPECT_EQ(ErrorOf(kMinimal, {"train.steps=0"}),
            "--set train.steps=0: train.steps: a run of 0 steps only validates, and without "
            "model.from its weights are random; expected at least 1 step, or a folder with weights "
            "as model.from");
  EXPECT_EQ(ErrorOf(kMinimal, {"model.from=folder", "validation.every=0", "train.steps=0"}),
            "--set train.steps=0: train.steps: a run of 0 steps only validates, and "
            "validation.every 0 turns that off; raise one of them");
}

TEST(RunSpec, ADecayIsWsdsAndFitsBehindTheWarmUp) {
  EXPECT_EQ(ErrorOf(kMinimal, {"train.schedule={kind: wsd, warmup: 160}"}), "no error");
  EXPECT_EQ(ErrorOf(kMinimal, {"train.schedule={kind: wsd, warmup: 161}"}),
            "--set train.schedule={kind: wsd, warmup: 161}: train.schedule.warmup: 161 steps and a "
            "decay of 40 (train.schedule.decay 0.2) are more than train.steps 200");
  EXPECT_EQ(ErrorOf(kMinimal, {"train.schedule.decay=0.2"}),
            "--set train.schedule.decay=0.2: train.schedule.decay: only the schedule wsd has a "
            "decay of its own, not cosine; leave decay out or set train.schedule.kind to wsd");
}

TEST(RunSpec, GradientsAreNotPredicted) {
  EXPECT_EQ(ErrorOf(kMinimal, {"links.forward=predict/gauss"}), "no error");
  EXPECT_THAT(ErrorOf(kMinimal, {"links.backward=predict:pairs=0/gauss"}),
              ::testing::HasSubstr(
                  "links.backward: 'predict:pairs=0/gauss' knows activations by their tokens, "
                  "and cannot send gradients"));
  EXPECT_THAT(ErrorOf(kMinimal, {"links.workers.w1.backward=predict/gauss"}),
              ::testing::HasSubstr("links.workers: 'predict/gauss'"));
}

TEST(RunSpec, AMomentumIsMuons) {
  EXPECT_EQ(ErrorOf(kMinimal, {"train.optimizer={kind: muon, momentum: 0.9}"}), "no error");
  EXPECT_EQ(ErrorOf(kMinimal, {"train.optimizer.momentum=0.9"}),
            "--set train.optimizer.momentum=0.9: train.optimizer.momentum: only muon has it, and "
            "adamw has betas; leave momentum out or set train.optimizer.kind to muon");
  EXPECT_EQ(ErrorOf(kMinimal, {"train.optimizer={kind: moun, momentum: 1, moments: fp16}"}),
            "--set train.optimizer={kind: moun, momentum: 1, moments: fp16}: train.optimizer.kind: "
            "expected one of adamw, muon, got 'moun'; did you mean 'muon'?\n"
            "--set train.optimizer={kind: moun, momentum: 1, moments: fp16}: "
            "train.optimizer.momentum: expected a number from 0 and below 1, got '1'\n"
            "--set train.optimizer={kind: moun, momentum: 1, moments: fp16}: "
            "train.optimizer.moments: expected one of fp32, bf16, got 'fp16'");
}

TEST(RunSpec, TheCacheLimitIsASize) {
  const auto limit = [](const std::string& text) {
    const auto spec = ParseRunSpec(std::string(kMinimal) + "links: { cache_limit: " + text + " }\n",
                                   "run.yaml", {});
    EXPECT_TRUE(spec.ok()) << spec.status();
    const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
    EXPECT_EQ(*again, *spec);
    return spec->links.cache_limit_bytes;
  };
  EXPECT_EQ(limit("3GiB"), uint64_t{3} << 30);
  EXPECT_EQ(limit("1500"), 1500u);
  EXPECT_EQ(limit("2MB"), 2'000'000u);
  EXPECT_EQ(LinksSpec().cache_limit_bytes, uint64_t{8} << 30);
  EXPECT_TRUE(absl::StartsWith(ErrorOf(std::string(kMinimal) + "links: { cache_limit: much }\n"),
                               "run.yaml:5:23: links.cache_limit: expected a size such as"))
      << ErrorOf(std::string(kMinimal) + "links: { cache_limit: much }\n");
}

TEST(RunSpec, DoublesSurviveToYaml) {
  std::mt19937_64 random(7);
  auto spec = *ParseRunSpec(kMinimal, "run.yaml", {});
  for (int i = 0; i < 200; ++i) {
    spec.train.optimizer.lr = std::uniform_real_distribution<double>(1e-12, 2)(random);
    spec.train.optimizer.epsilon =
        std::ldexp(1.0 + 0x1p-52, -static_cast<int>(random() % 1000) - 1);
    spec.train.optimizer.beta2 = std::uniform_real_distribution<double>(0, 1)(random);
    const auto again = ParseRunSpec(ToYaml(spec), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(*again, spec);
  }
}

TEST(RunSpec, PairsOfCodecsHaveNames) {
  const auto links = [](const std::string& name) {
    const auto spec = ParseRunSpec(std::string(kMinimal) + "links: " + name + "\n", "run.yaml", {});
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec->links.codecs;
  };
  EXPECT_EQ(links("paper"), (CodecPair{"tah", "fixed:bits=6"}));
  EXPECT_EQ(links("exact"), (CodecPair{"none", "none"}));
  EXPECT_EQ(links("auto"), (CodecPair{"auto", "auto"}));
  EXPECT_EQ(links("default"), CodecPair());
  for (const LinkPair& pair : kLinkPairs) {
    const CodecPair codecs = links(std::string(pair.name));
    if (codecs.is_auto()) continue;
    EXPECT_TRUE(codecs.forward.Get().ok()) << codecs.forward.Get().status();
    EXPECT_TRUE(codecs.backward.Get().ok()) << codecs.backward.Get().status();
  }
  EXPECT_EQ(
      ErrorOf(std::string(kMinimal) + "links: papers\n"),
      "run.yaml:5:8: links: expected 'default', 'fast', 'paper', 'exact', 'auto' or a mapping "
      "with forward, backward, error, cache_limit, measure, encrypt, workers, got 'papers'");
}

TEST(RunSpec, OverridesReadTheSameTables) {
  const auto spec = ParseRunSpec(
      kEveryKey, "run.yaml",
      {"train.steps=21", "data.text=[b.txt]", "links.forward=tah:p=0.5,tile=32",
       "train.optimizer.betas=[0.5, 0.6]", "links.workers.worker2.backward=none",
       "pipeline.stages=auto", "model.tied=false", "peer_timeout=1m", "model={layers: 9}"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->train.steps, 21u);
  EXPECT_EQ(spec->train.microbatches, 16u);
  EXPECT_EQ(spec->data.text, std::vector<std::string>{"b.txt"});
  EXPECT_EQ(spec->links.codecs, (CodecPair{"tah:p=0.5,tile=32", "fixed:bits=6"}));
  EXPECT_EQ(spec->links.by_worker[0].second.codecs, (CodecPair{"tah", "none"}));
  EXPECT_EQ(spec->train.optimizer.beta2, 0.6);
  EXPECT_EQ(spec->pipeline.stages, std::nullopt);
  EXPECT_EQ(spec->peer_timeout, absl::Minutes(1));
  EXPECT_EQ(spec->model.layers, 9u);
  EXPECT_EQ(spec->model.hidden, 256u);
}

TEST(RunSpec, OverridesSupplyWhatTheFileLacks) {
  EXPECT_TRUE(ParseRunSpec("name: a\nmodel: {layers: 1, hidden: 8, heads: 1}\ndata: {text: x}\n",
                           "run.yaml", {"model.context=8", "train.steps=1", "train.microbatches=1"})
                  .ok());
}

TEST(RunSpec, CopiesAreMadeBetweenHostsUnlessTheFileSaysHowOften) {
  const std::string text =
      "name: r\nmodel: { layers: 1, hidden: 8, heads: 2, context: 8 }\n"
      "data: { text: x.txt }\ntrain: { steps: 1, microbatches: 1 }\n";
  const auto with = [&](const std::string& every) {
    return ParseRunSpec(text + (every.empty() ? "" : "recovery: { every: " + every + " }\n"),
                        "run.yaml", {});
  };
  const auto usual = with("");
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(usual->recovery, (RecoverySpec{.every = 0, .every_between_hosts = true}));
  EXPECT_EQ(*with("between-hosts"), *usual);
  EXPECT_EQ(with("0")->recovery, (RecoverySpec{.every = 0, .every_between_hosts = false}));
  EXPECT_EQ(with("7")->recovery, (RecoverySpec{.every = 7, .every_between_hosts = false}));
  EXPECT_EQ(with("auto")->recovery.every, std::nullopt);
  for (const std::string every : {"", "0", "7", "auto"}) {
    const auto spec = with(every);
    EXPECT_EQ(*ParseRunSpec(ToYaml(*spec), "again.yaml", {}), *spec) << every;
  }
  EXPECT_THAT(std::string(Message(with("never").status())),
              ::testing::HasSubstr("recovery.every: expected a whole number from 0 to 1000000, "
                                   "auto or between-hosts, got 'never'"));
}

}  // namespace
}  // namespace longhaul
