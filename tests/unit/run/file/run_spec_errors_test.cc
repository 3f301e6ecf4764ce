// What is said of run files that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "run/file/keys.h"
#include "run/file/other_names.h"
#include "run/file/run_spec.h"
#include "tests/unit/run/file/run_texts.h"

namespace longhaul {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

TEST(RunSpec, AllErrorsAtOnceInTheOrderOfTheFile) {
  EXPECT_EQ(
      ErrorOf(R"(name: Tiny WAN
model: { layers: eight, hidden: 250, heads: 8, context: 0 }
data: { text: [corpus/*.txt], tokeniser: bytes }
train:
  steps: 99999999999999999999999
  microbatches: -4
  microbatches: 5
  optimizer: { lr: fast, betas: [0.9, 1], clip_norm: .nan }
  schedule: [cosine]
pipeline: { schedule: 1f1b1, recompute: 1, stages: "2" }
transport: grcp
links: { forward: tha, zzz: 1, workers: { w: { transport: pigeons } } }
peer_timeout: 10
)"),
      R"(run.yaml:1:7: name: expected 1 to 40 of a-z, 0-9 and '-', beginning with a letter or digit, got 'Tiny WAN'
run.yaml:2:18: model.layers: expected a whole number from 1 to 4096, got 'eight'
run.yaml:2:45: model.heads: 8 heads do not divide model.hidden 250; choose a divisor
run.yaml:2:57: model.context: expected a whole number from 1 to 4194304, got '0'
run.yaml:3:31: unknown key 'tokeniser'; did you mean 'tokenizer'?
run.yaml:5:10: train.steps: expected a whole number from 0 to 1000000000, got '99999999999999999999999'
run.yaml:6:17: train.microbatches: expected a whole number from 1 to 65536, got '-4'
run.yaml:7:3: the key 'train.microbatches' is here twice; the first one is at run.yaml:6:17
run.yaml:8:20: train.optimizer.lr: expected a number above 0 to 1000, got 'fast'
run.yaml:8:39: train.optimizer.betas: expected a number from 0 and below 1, got '1'
run.yaml:8:54: train.optimizer.clip_norm: expected a number from 0 to 1000000000, got '.nan'
run.yaml:9:13: train.schedule: expected a mapping with kind, warmup, final_ratio, decay, got a list
run.yaml:10:23: pipeline.schedule: expected one of link-aware, 1f1b, gpipe, 2bw, got '1f1b1'; did you mean '1f1b'?
run.yaml:10:41: pipeline.recompute: expected one of none, blocks, stage, got '1'
run.yaml:10:52: pipeline.stages: expected a whole number from 1 to 4096 or auto, got the text "2"; remove the quotes
run.yaml:11:12: transport: expected one of auto, ucx, tcp, grpc, got 'grcp'; did you mean 'grpc'?
run.yaml:12:19: links.forward: unknown codec 'tha'; did you mean 'tah'? (known codecs: none, bf16, fp16, fixed, tah, gauss, dither, aqsgd, zip, taco, predict, python)
run.yaml:12:24: unknown key 'zzz'; the keys of 'links' are forward, backward, cache_limit, measure, encrypt, error, chosen, workers
run.yaml:12:59: links.workers.w.transport: expected one of ucx, tcp, grpc, got 'pigeons'
run.yaml:13:15: peer_timeout: expected a duration such as 20ms, 1.5s or 2m30s, got '10'; units are ns, us, ms, s, m, h, d; at most 36500d)");
}

TEST(RunSpec, MissingKeysSayWhatIsExpected) {
  EXPECT_EQ(
      ErrorOf("name: a\nmodel: { layers: 2, heads: 2 }\ndata:\ntrain: 5\n"),
      R"(run.yaml:2:8: the key 'model.hidden' is missing; expected a whole number from 1 to 131072
run.yaml:2:8: the key 'model.context' is missing; expected a whole number from 1 to 4194304
run.yaml:3:1: the key 'data.text' is missing; expected file names or globs, such as [corpus/*.txt]
run.yaml:4:8: train: expected a mapping with steps, epochs, microbatches, microbatch_size, dtype, seed, deterministic, on_nonfinite, optimizer, schedule, lora, dpo, got '5')");
}

TEST(RunSpec, AMissingKeySaysWhichOtherWouldDo) {
  EXPECT_EQ(ErrorOf("name: a\nmodel: { layers: 2, hidden: 8, heads: 2, context: 8 }\n"
                    "data: { text: x }\ntrain: { microbatches: 2 }\n"),
            "run.yaml:4:8: the key 'train.steps' is missing; expected a whole number from 0 to "
            "1000000000, or train.epochs instead");
}

TEST(RunSpec, ImpossibleCombinations) {
  EXPECT_EQ(ErrorOf(R"(name: a
model: { layers: 2, hidden: 250, heads: 8, context: 8, tied: true }
data: { text: x.txt }
validation: { share: 0 }
train: { steps: 10, microbatches: 2, schedule: { warmup: 11 } }
pipeline: { stages: 3, depth: 3 }
)"),
            R"(run.yaml:2:41: model.heads: 8 heads do not divide model.hidden 250; choose a divisor
run.yaml:4:22: validation.share: 0 leaves no text for the validation every 50 steps; raise it or set validation.every to 0
run.yaml:5:58: train.schedule.warmup: 11 steps are more than train.steps 10
run.yaml:6:21: pipeline.stages: 3 stages are more than the model's 2 layers; every stage needs one
run.yaml:6:31: pipeline.depth: 3 microbatches in flight are more than the 2 of a step (train.microbatches))");
  EXPECT_TRUE(
      absl::StrContains(ErrorOf(kMinimal, {"model.context=4194304", "train.microbatch_size=65536"}),
                        "is more than the 536870912 elements"));
  EXPECT_TRUE(absl::StrContains(ErrorOf(kMinimal, {"pipeline={schedule: gpipe, depth: 3}"}),
                                "gpipe keeps all 16 microbatches"));
}

TEST(RunSpec, StepsThatCannotOverlap) {
  const auto with = [](std::vector<std::string> overrides) {
    overrides.push_back("pipeline.schedule=2bw");
    return ErrorOf(kMinimal, overrides);
  };
  EXPECT_EQ(with({}), "no error");
  EXPECT_EQ(with({"pipeline.slices=4", "pipeline.depth=2"}), "no error");
  EXPECT_EQ(with({"links.forward=predict/gauss"}), "no error");
  EXPECT_EQ(with({"group.tensor=2"}), "no error");
  EXPECT_EQ(with({"group.tensor=auto", "pipeline.slices=auto"}), "no error");
  const std::pair<std::vector<std::string>, std::string> refused[] = {
      {{"pipeline.replicas=2"}, "replicas (pipeline.replicas) exchange gradients"},
      {{"links.workers={ w: { backward: aqsgd } }"}, "what the codec aqsgd remembers is saved"},
      {{"model={ family: moe, experts: 4, experts_per_token: 2, expert_intermediate: 64 }"},
       "family moe balances experts between two steps"},
      {{"model.tied=true"}, "two stages train one matrix (model.tied: true)"},
  };
  for (const auto& [overrides, why] : refused) {
    EXPECT_TRUE(absl::StrContains(with(overrides), "got 2bw, which has steps overlap: " + why))
        << with(overrides);
  }
  EXPECT_TRUE(absl::StrContains(with({"pipeline.send_order=activations-first"}),
                                "pipeline.send_order: 2bw sends in no order"));
}

TEST(RunSpec, SlicesThatCannotBe) {
  const auto with = [](const std::vector<std::string>& overrides) {
    return ErrorOf(kMinimal, overrides);
  };
  EXPECT_EQ(with({"pipeline.slices=4"}), "no error");
  EXPECT_EQ(with({"pipeline.slices=auto"}), "no error");
  EXPECT_TRUE(absl::StrContains(with({"pipeline.slices=3"}),
                                "pipeline.slices: expected a number that divides model.context "
                                "256, got 3"));
  EXPECT_TRUE(absl::StrContains(with({"pipeline.slices=0"}),
                                "pipeline.slices: expected a whole number from 1 to 1024 or auto"));
  for (const char* slices : {"pipeline.slices=4", "pipeline.slices=auto"}) {
    EXPECT_EQ(with({slices, "links.forward=predict/gauss"}), "no error");
    EXPECT_TRUE(absl::StrContains(with({slices, "links.workers={ w: { backward: aqsgd } }"}),
                                  "because the codec aqsgd knows samples whole"));
    EXPECT_EQ(with({slices, "group.tensor=2"}), "no error");
    EXPECT_EQ(with({slices, "group={ tensor: 2, sequence: true }"}), "no error");
    EXPECT_TRUE(
        absl::StrContains(with({slices,
                                "model={ family: moe, experts: 4, experts_per_token: 2, "
                                "expert_intermediate: 64 }"}),
                          "because family moe balances experts over all tokens of a microbatch"));
  }
  EXPECT_EQ(with({"pipeline.slices=1", "links.forward=predict/gauss"}), "no error");
  EXPECT_TRUE(absl::StrContains(
      with({"pipeline.slices=128", "model.heads=4", "group={ tensor: 4, sequence: true }"}),
      "pipeline.slices: with group.sequence the 4 ranks of group.tensor have equally many of a "
      "slice's tokens, and do not divide the 2 of each of 128 slices"));
}

// What holds two values against each other does so beside a third that is wrong, and says nothing
// of values that are wrong by themselves, missing, or in a section that is none.
TEST(RunSpec, CombinationsAreCheckedBesideOtherErrors) {
  EXPECT_EQ(
      ErrorOf(R"(name: No Name
model: { layers: 2, hidden: 250, heads: 8, context: none, tied: true }
data: { text: x.txt }
validation: { share: 0, samples: none }
train: { steps: 10, microbatches: 2, microbatch_size: 0, schedule: { warmup: 11 } }
pipeline: { stages: 3, depth: 3, recompute: perhaps }
)"),
      R"(run.yaml:1:7: name: expected 1 to 40 of a-z, 0-9 and '-', beginning with a letter or digit, got 'No Name'
run.yaml:2:41: model.heads: 8 heads do not divide model.hidden 250; choose a divisor
run.yaml:2:53: model.context: expected a whole number from 1 to 4194304, got 'none'
run.yaml:4:22: validation.share: 0 leaves no text for the validation every 50 steps; raise it or set validation.every to 0
run.yaml:4:34: validation.samples: expected a whole number from 1 to 16777216, got 'none'
run.yaml:5:55: train.microbatch_size: expected a whole number from 1 to 65536, got '0'
run.yaml:5:78: train.schedule.warmup: 11 steps are more than train.steps 10
run.yaml:6:21: pipeline.stages: 3 stages are more than the model's 2 layers; every stage needs one
run.yaml:6:31: pipeline.depth: 3 microbatches in flight are more than the 2 of a step (train.microbatches)
run.yaml:6:45: pipeline.recompute: expected one of none, blocks, stage, got 'perhaps')");
  EXPECT_THAT(
      ErrorOf("name: a\nmodel: 5\ndata: { text: x }\ntrain: { steps: 1 }\n"
              "pipeline: { stages: 9, depth: 9 }\n"),
      AllOf(StartsWith("run.yaml:2:8: model: expected a mapping with preset, from, upload, "),
            EndsWith(", got '5'\n"
                     "run.yaml:4:8: the key 'train.microbatches' is missing; expected a "
                     "whole number from 1 to 65536")));
  EXPECT_EQ(ErrorOf(kMinimal, {"model.heads=7", "model.preset=gpt5"}).find("family llama"),
            std::string::npos);
}

TEST(RunSpec, TextsThatAreNotThereAreSaidBesideOtherErrors) {
  const auto error = [](std::string_view yaml, const FindTexts& find_texts) {
    return std::string(Message(ParseRunSpec(yaml, "run.yaml", {}, find_texts).status()));
  };
  const std::string wrong =
      "name: a\nmodel: { layers: 2, hidden: 9, heads: 2, context: 99 }\n"
      "data: { text: [x, y] }\ntrain: { steps: 2, microbatches: 1 }\n";
  EXPECT_EQ(error(wrong,
                  [](const RunSpec& spec) -> StatusOr<uint64_t> {
                    EXPECT_EQ(spec.data.text, (std::vector<std::string>{"x", "y"}));
                    return absl::InvalidArgumentError("'x' is not there\n'y' is not there");
                  }),
            "run.yaml:2:39: model.heads: 2 heads do not divide model.hidden 9; choose a divisor\n"
            "run.yaml:3:15: 'x' is not there\nrun.yaml:3:15: 'y' is not there");
  const auto small = [](const RunSpec&) -> StatusOr<uint64_t> { return 3; };
  EXPECT_TRUE(absl::StrContains(error(wrong, small), "run.yaml:3:15: data.text: 3 tokens to train"))
      << error(wrong, small);
  // Nobody asks for the size of a text whose globs are wrong.
  const auto never = [](const RunSpec&) -> StatusOr<uint64_t> {
    ADD_FAILURE() << "asked for texts";
    return 0;
  };
  EXPECT_TRUE(absl::StrContains(
      error("name: a\nmodel: { layers: 2, hidden: 8, heads: 2, context: 99 }\ndata: { text: [] }\n"
            "train: { steps: 2, microbatches: 1 }\n",
            never),
      "got an empty list"));
}

TEST(RunSpec, FilesThatAreNoRunFiles) {
  EXPECT_EQ(ErrorOf(""),
            "run.yaml:1:1: the file is empty; expected name, model, data, train and what else the "
            "run needs");
  EXPECT_EQ(ErrorOf("# nothing\n"), ErrorOf(""));
  EXPECT_TRUE(absl::StartsWith(ErrorOf("- a\n- b\n"),
                               "run.yaml:1:1: the file: expected a mapping with name, model,"));
  EXPECT_TRUE(absl::StartsWith(ErrorOf("name: [a\nmodel: }"), "run.yaml:2:6: not valid YAML: "))
      << ErrorOf("name: [a\nmodel: }");
  EXPECT_EQ(ErrorOf("name: a\n---\nname: b\n"),
            "run.yaml:2:1: expected the end of the file, got more; a configuration is one YAML "
            "document without '---' lines inside and without stray ',', ']' or '}'");
  EXPECT_TRUE(absl::StartsWith(ErrorOf(",name: a\n"), "run.yaml:1:1: expected the end of the file"))
      << ErrorOf(",name: a\n");
  EXPECT_EQ(ErrorOf("name: a\nmodel: \xff\xfe"),
            "run.yaml:2:8: expected UTF-8 text, got the byte 0xff; save the file as UTF-8");
  EXPECT_EQ(ErrorOf(std::string_view("name: \0x", 8)),
            "run.yaml:1:7: control character 0x00; remove it");
  EXPECT_EQ(ErrorOf(std::string(1 << 21, ' ')),
            "run.yaml: 2097152 bytes; a configuration has at most 1048576");
  EXPECT_TRUE(absl::StrContains(ErrorOf("? [a]\n: b\n"), "expected a word as key, got a list"));
  EXPECT_NE(ErrorOf(std::string(100'000, '[')), "no error");
}

TEST(RunSpec, AByteOrderMarkAndForeignLettersAreFine) {
  const auto spec = ParseRunSpec("\xEF\xBB\xBF" + std::string(kMinimal) +
                                     "# Gr\xC3\xBC\xC3\x9F"
                                     "e\n",
                                 "run.yaml", {"data.text=[\xC3\xA4.txt]"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data.text[0], "\xC3\xA4.txt");
}

TEST(RunSpec, AliasesAreReadButNeverExpandedWithoutBound) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string previous = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + previous;
    for (int k = 0; k < 9; ++k) bomb += ", " + previous;
    bomb += "]\n";
  }
  bomb += "name: *a29\nmodel: &m { layers: *a29, self: *m }\ndata: { text: *a29 }\n";
  const std::string error = ErrorOf(bomb);
  EXPECT_TRUE(absl::StrContains(error, "unknown key 'a0'")) << error;
  const auto spec = ParseRunSpec(std::string(kMinimal) + "checkpoint: { every: &n 5, keep: *n }\n",
                                 "run.yaml", {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->checkpoint, (CheckpointSpec{5, 5}));
}

TEST(RunSpec, CheckpointsGoToFoldersOfObjectStores) {
  const auto with = [](const std::string& to) {
    return std::string(kMinimal) + "checkpoint: { to: '" + to + "' }\n";
  };
  for (const char* to : {"s3://bucket", "s3://bucket/a/b.c-d_e=1/", "gs://bucket/x"}) {
    const auto spec = ParseRunSpec(with(to), "run.yaml", {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->checkpoint.to, to);
    EXPECT_EQ(ParseRunSpec(ToYaml(*spec), "run.yaml", {})->checkpoint.to, to);
  }
  for (const char* to : {"", "bucket/a", "hf://org/name", "https://host/a", "s3://", "s3:///a",
                         "s3://bucket//a", "s3://bucket/../a", "s3://bucket/a b",
                         "s3://bucket/a%2e", "s3://bucket/a?b", "file:///a"}) {
    EXPECT_TRUE(absl::StrContains(ErrorOf(with(to)), "checkpoint.to: expected a folder")) << to;
  }
}

TEST(RunSpec, ManyErrorsAreCutShort) {
  std::string many;
  for (int i = 0; i < 80; ++i) many += "key" + std::to_string(i) + "zzz: 1\n";
  EXPECT_TRUE(absl::EndsWith(ErrorOf(many), "\nand 38 more errors")) << ErrorOf(many);
}

TEST(RunSpec, WrongOverridesNameThemselves) {
  EXPECT_EQ(ErrorOf(kMinimal, {"model.lyers=2", "train.steps=", "steps", "=3", ".a=1", "a..b=1",
                               "name=[", "train.schedule.warmup=300", "model.heads=7"}),
            R"(--set model.lyers=2: unknown key 'lyers'; did you mean 'layers'?
--set train.steps=: train.steps: expected a whole number from 0 to 1000000000, got nothing
--set steps: expected KEY=VALUE, such as train.steps=20
--set =3: expected KEY=VALUE, such as train.steps=20
--set .a=1: expected KEY=VALUE with a key such as train.steps
--set a..b=1: expected KEY=VALUE with a key such as train.steps
--set name=[: the value is not valid YAML; quote what has brackets, braces or quotes
--set model.heads=7: model.heads: 7 heads do not divide model.hidden 256; choose a divisor)");
  EXPECT_EQ(ErrorOf(kMinimal, {"model.heads=7"}),
            "--set model.heads=7: model.heads: 7 heads do not divide model.hidden 256; choose a "
            "divisor");
}

// Every prefix and many random edits of a good file: an error or a spec, never a crash, and what
// parses round-trips.
TEST(RunSpec, HostileTextNeverCrashes) {
  const auto check = [](const std::string& text) {
    const auto spec = ParseRunSpec(text, "run.yaml", {});
    if (!spec.ok()) return;
    const auto again = ParseRunSpec(ToYaml(*spec), "again.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    ASSERT_EQ(*again, *spec) << text;
  };
  for (size_t i = 0; i <= kEveryKey.size(); ++i) check(std::string(kEveryKey.substr(0, i)));
  std::mt19937_64 random(1);
  constexpr std::string_view kAlphabet = "{}[]:,&*!|>'\"%@#-?\n \t019.aen\x80\xff";
  for (int i = 0; i < 5000; ++i) {
    std::string text(kEveryKey);
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      text[random() % text.size()] = kAlphabet[random() % kAlphabet.size()];
    }
    check(text);
  }
}

// People bring the names of the program that they used before.
TEST(RunSpecErrors, KeysOfOtherProgramsHaveTheirNamesHere) {
  EXPECT_EQ(ErrorOf(std::string(kMinimal) + R"(learning_rate: 2e-5
per_device_train_batch_size: 4
gradient-accumulation-steps: 8
bf16: true
gradient_checkpointing: true
lr_scheduler_type: constant_with_warmup
output_dir: out
warmup_ratio: 0.03
)"),
            R"(run.yaml:5:1: unknown key 'learning_rate'; here it is train.optimizer.lr: 2e-5
run.yaml:6:1: unknown key 'per_device_train_batch_size'; here it is train.microbatch_size: 4
run.yaml:7:1: unknown key 'gradient-accumulation-steps'; here it is train.microbatches: 8
run.yaml:8:1: unknown key 'bf16'; here it is train.dtype: bf16
run.yaml:9:1: unknown key 'gradient_checkpointing'; here it is pipeline.recompute: blocks
run.yaml:10:1: unknown key 'lr_scheduler_type'; here it is train.schedule.kind: constant
run.yaml:11:1: unknown key 'output_dir'; here it is no key: checkpoints are on the workers' disks, and `longhaul export --out` writes a model
run.yaml:12:1: unknown key 'warmup_ratio'; here it is train.schedule.warmup, in steps: this share of train.steps)");
  EXPECT_EQ(
      ErrorOf(kMinimal, {"train.num_train_epochs=3"}),
      "--set train.num_train_epochs=3: unknown key 'num_train_epochs'; here it is train.epochs: 3");
}

// Every name leads to a key that there is, or to a sentence.
TEST(RunSpecErrors, NamesOfOtherProgramsLeadToKeys) {
  for (const char* theirs : {"lr", "max_steps", "grad_clip", "n_layer", "lora_r", "save_steps",
                             "tensor_parallel_size", "num_key_value_heads", "val_set_size"}) {
    const std::string name = config::OtherName(theirs, "");
    EXPECT_TRUE(std::ranges::any_of(config::Keys(),
                                    [&](const config::Key& key) { return key.path == name; }))
        << theirs << ": " << name;
  }
  EXPECT_EQ(config::OtherName("lyers", "3"), "");
}

}  // namespace
}  // namespace longhaul
