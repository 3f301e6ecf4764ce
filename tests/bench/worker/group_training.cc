// Losses of a model that is trained by a group of ranks, threads on the CPU or GPUs: what
// compressed sums and channels of each rank's own cost in learning, and what they save in bytes.
// One process, no links.
//
//   group_training --text FILE --ranks 8 --shared 1,0.75,0.5,0.25 --steps 2000 --csv rows.csv
//   group_training --text FILE --ranks 2 --collectives none,taco,zip --seeds 1,2,3
//   group_training --text FILE --devices cuda:0-1 --dtype bf16 --shared 1,0.5 --validate 512
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/file.h"
#include "run/tokens/token_file.h"
#include "worker/ranks/communicators.h"
#include "worker/stage/device/torch_cuda.h"
#include "worker/stage/group/group_stage.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

struct Flags {
  std::string text, csv, devices;
  uint32_t ranks = 2, layers = 4, hidden = 128, heads = 8, context = 128, microbatch_size = 8;
  uint64_t steps = 2000, every = 200, validated = 0;
  double lr = 2e-3;
  std::string dtype = "fp32";
  std::vector<std::string> collectives = {"none"};
  std::vector<double> shared = {1};
  std::vector<uint64_t> seeds = {1};
};

struct Variant {
  std::string collective = "none";
  double shared = 1;
  uint64_t seed = 1;
};

GroupCollective CollectiveOf(const std::string& name) {
  if (name == "taco") return GroupCollective::kTaco;
  return name == "zip" ? GroupCollective::kZip : GroupCollective::kNone;
}

StageOptions OptionsOf(const Flags& flags, const Variant& variant) {
  StageOptions options;
  options.model.family = ModelFamily::kLlama;
  options.model.layers = flags.layers;
  options.model.hidden = flags.hidden;
  options.model.heads = options.model.kv_heads = flags.heads;
  options.model.intermediate = flags.hidden * 3;
  options.model.context = flags.context;
  options.layers = flags.layers;
  options.train.steps = flags.steps;
  options.train.microbatches = 1;
  options.train.microbatch_size = flags.microbatch_size;
  options.train.seed = variant.seed;
  options.train.dtype = flags.dtype == "bf16" ? ComputeDtype::kBf16 : ComputeDtype::kFp32;
  options.train.optimizer.lr = flags.lr;
  options.train.schedule.warmup = flags.steps / 20;
  options.group.tensor = flags.ranks;
  options.group.shared_channels = variant.shared;
  options.group.forward = options.group.backward = CollectiveOf(variant.collective);
  options.ranks.resize(flags.ranks);
  return options;
}

// The devices that are named, each a rank, instead of ranks of the CPU.
StatusOr<StageOptions> OptionsWithDevices(const Flags& flags, const Variant& variant) {
  StageOptions options = OptionsOf(flags, variant);
  if (flags.devices.empty()) return options;
  LH_ASSIGN_OR_RETURN(options.ranks, ParseDeviceNames(flags.devices));
  options.device = options.ranks.front();
  options.group.tensor = static_cast<uint32_t>(options.ranks.size());
  return options;
}

class Training {
 public:
  Training(const Flags& flags, const TokenFile& tokens, StageOptions options)
      : flags_(flags), tokens_(tokens), options_(std::move(options)) {
    inputs_.resize(size_t{flags.microbatch_size} * flags.context);
    targets_.resize(inputs_.size());
  }
  Status Start() {
    if (options_.ranks.size() == 1) {
      options_.ranks.clear();
      LH_ASSIGN_OR_RETURN(stage_, Stage::Create(options_));
    } else {
      LH_ASSIGN_OR_RETURN(stage_, MakeGroupStage(options_, CommunicatorsFor(options_)));
    }
    return absl::OkStatus();
  }
  StatusOr<double> Step(uint64_t step) {
    const uint64_t windows = tokens_.TrainingWindows(flags_.context);
    for (uint32_t row = 0; row < flags_.microbatch_size; ++row) {
      const uint64_t sample = (step - 1) * flags_.microbatch_size + row;
      tokens_.ReadTrainingWindow(TrainingWindowOf(options_.train.seed, sample, windows),
                                 flags_.context, Row(inputs_, row), Row(targets_, row));
    }
    LH_RETURN_IF_ERROR(stage_->Forward(Microbatch(0), {inputs_, {}, targets_}).status());
    LH_ASSIGN_OR_RETURN(const double loss, stage_->Loss(Microbatch(0)));
    LH_RETURN_IF_ERROR(stage_->Backward(Microbatch(0), {}).status());
    LH_ASSIGN_OR_RETURN(const SquaredNorm norm, stage_->AddSquaredGradientNorm(0));
    LH_RETURN_IF_ERROR(stage_->OptimizerStep(
        longhaul::Step(step), LearningRate(options_.train, longhaul::Step(step)),
        ClipScale(options_.train.optimizer.clip_norm, norm.sum)));
    return loss;
  }
  // Over the windows of the validation text that fill microbatches: all, or the first ones.
  StatusOr<double> Validate() {
    const uint64_t all = tokens_.ValidationWindows(flags_.context);
    const uint64_t windows = flags_.validated == 0 ? all : std::min(flags_.validated, all);
    const uint64_t batches = windows / flags_.microbatch_size;
    double sum = 0;
    for (uint64_t batch = 0; batch < batches; ++batch) {
      for (uint32_t row = 0; row < flags_.microbatch_size; ++row) {
        tokens_.ReadValidationWindow(batch * flags_.microbatch_size + row, flags_.context,
                                     Row(inputs_, row), Row(targets_, row));
      }
      double loss = 0;
      LH_RETURN_IF_ERROR(stage_->Evaluate(Slice(), {inputs_, {}, targets_}, &loss).status());
      sum += loss;
    }
    return sum / static_cast<double>(batches);
  }
  uint64_t parameter_count() const { return stage_->parameter_count(); }
  uint32_t ranks() const { return options_.group.tensor; }
  // Since the stage was made, by all ranks.
  uint64_t SentBytes() const { return stage_->collectives().sent.total(); }

 private:
  std::span<int32_t> Row(std::vector<int32_t>& batch, uint32_t row) const {
    return std::span(batch).subspan(size_t{row} * flags_.context, flags_.context);
  }

  const Flags& flags_;
  const TokenFile& tokens_;
  StageOptions options_;
  std::unique_ptr<Stage> stage_;
  std::vector<int32_t> inputs_, targets_;
};

Status Train(const Flags& flags, const TokenFile& tokens, const Variant& variant, std::FILE* csv) {
  LH_ASSIGN_OR_RETURN(StageOptions options, OptionsWithDevices(flags, variant));
  Training training(flags, tokens, std::move(options));
  LH_RETURN_IF_ERROR(training.Start());
  const std::string name = fmt::format("{},{},{},{}", training.ranks(), variant.collective,
                                       variant.shared, variant.seed);
  const MonoTime began = Now();
  double train = 0;
  uint64_t before = training.SentBytes(), bytes_a_step = 0;
  for (uint64_t step = 1; step <= flags.steps; ++step) {
    LH_ASSIGN_OR_RETURN(train, training.Step(step));
    if (step == 1) bytes_a_step = training.SentBytes() - before;
    if (step % flags.every != 0 && step != flags.steps) continue;
    LH_ASSIGN_OR_RETURN(const double validation, training.Validate());
    const std::string row =
        fmt::format("{},{},{:.5f},{:.5f},{},{},{:.1f}\n", name, step, train, validation,
                    training.parameter_count(), bytes_a_step, absl::ToDoubleSeconds(Now() - began));
    fmt::print("{}", row);
    std::fflush(stdout);
    if (csv != nullptr) {
      fmt::print(csv, "{}", row);
      std::fflush(csv);
    }
  }
  return absl::OkStatus();
}

Status Run(const Flags& flags) {
  if (flags.devices.starts_with("cuda")) {
    LH_RETURN_IF_ERROR(LoadTorchCuda(DefaultTorchCudaPath()));
  }
  const std::string path =
      fmt::format("{}.{}.tokens", flags.csv.empty() ? "/tmp/group" : flags.csv, ::getpid());
  LH_RETURN_IF_ERROR(WriteTokenFile({flags.text}, "bytes", 0.05, path).status());
  LH_ASSIGN_OR_RETURN(const TokenFile tokens, TokenFile::Open(path, /*verify=*/false));
  ::unlink(path.c_str());
  std::FILE* csv = nullptr;
  if (!flags.csv.empty()) {
    csv = std::fopen(flags.csv.c_str(), "w");
    if (csv == nullptr) return absl::NotFoundError("expected to write " + flags.csv);
  }
  constexpr char kHeader[] =
      "ranks,collective,shared,seed,step,train_loss,validation_loss,parameters,sent_bytes_a_step,"
      "seconds\n";
  fmt::print("{}", kHeader);
  if (csv != nullptr) fmt::print(csv, "{}", kHeader);
  Status status;
  for (const uint64_t seed : flags.seeds) {
    for (const std::string& collective : flags.collectives) {
      for (const double shared : flags.shared) {
        if (status.ok()) status = Train(flags, tokens, {collective, shared, seed}, csv);
      }
    }
  }
  if (csv != nullptr) std::fclose(csv);
  return status;
}

}  // namespace
}  // namespace longhaul::worker

int main(int argc, char** argv) {
  longhaul::worker::Flags flags;
  CLI::App app("Losses of a model that is trained by a group of ranks");
  app.add_option("--text", flags.text, "a text file; its last 5 % are for validation")
      ->required()
      ->check(CLI::ExistingFile);
  CLI::Option* const ranks =
      app.add_option("--ranks", flags.ranks, "threads on the CPU")->check(CLI::Range(1, 64));
  app.add_option("--devices", flags.devices, "GPUs instead, a rank on each: cuda:0-1")
      ->excludes(ranks);
  app.add_option("--layers", flags.layers);
  app.add_option("--hidden", flags.hidden);
  app.add_option("--heads", flags.heads);
  app.add_option("--context", flags.context);
  app.add_option("--batch", flags.microbatch_size, "sequences a step");
  app.add_option("--steps", flags.steps);
  app.add_option("--every", flags.every, "steps between validations");
  app.add_option("--validate", flags.validated, "sequences of validation; 0: all there are");
  app.add_option("--lr", flags.lr);
  app.add_option("--dtype", flags.dtype)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--collectives", flags.collectives)
      ->delimiter(',')
      ->check(CLI::IsMember({"none", "taco", "zip"}));
  app.add_option("--shared", flags.shared, "shares of channels that are summed")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seeds", flags.seeds)->delimiter(',');
  app.add_option("--csv", flags.csv);
  CLI11_PARSE(app, argc, argv);
  const longhaul::Status status = longhaul::worker::Run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "group_training: {}\n", longhaul::Message(status));
  return 1;
}
