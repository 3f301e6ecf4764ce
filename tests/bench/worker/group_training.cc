// Losses of a model that is trained by a group of ranks, threads on the CPU or GPUs: what
// compressed sums and channels of each rank's own cost in learning, and what they save in bytes.
// One process, no links. Ends with a table of losses and of their differences to those of the same
// ranks and seed with nothing compressed.
//
//   group_training --text FILE --ranks 8 --shared 1,0.75,0.5,0.25 --steps 2000 --csv rows.csv
//   group_training --text FILE --ranks 2 --collectives none,taco,zip --seeds 1,2,3
//   group_training --text FILE --devices cuda:0-1 --dtype bf16 --shared 1,0.5 --validate 512
//
// Channels of ranks' own (CAAT-Net) at 130 M parameters, all ranks on one GPU; each call trains for
// 8 minutes, and the next one goes on to the bit:
//
//   group_training --text FILE --device cuda:0 --dtype bf16 --ranks 4 --shared 1,0.75,0.5,0.25
//       --seeds 1,2,3 --layers 17 --hidden 768 --heads 12 --context 1024 --batch 16 --lr 6e-4
//       --steps 3000 --every 250 --validate 960 --csv rows.csv --limit 8m --state unfinished
//
// All ranks on one GPU, which train as ranks of several GPUs do, but slower; whatever is in the
// file of rows is not trained again:
//
//   group_training --text FILE --device cuda:0 --dtype bf16 --ranks 2,4 --seeds 1,2,3
//       --collectives none,taco,taco:format=e5m2,taco:format=int8 --csv rows.csv --limit 8m
#include <c10/core/AutogradState.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/device_name.h"
#include "codec/codec.h"
#include "codec/registry.h"
#include "coded_sums.h"
#include "kept_rows.h"
#include "loss_rows.h"
#include "run/file/group_collective.h"
#include "run/tokens/token_file.h"
#include "tests/support/one_memory.h"
#include "training_state.h"
#include "transport/collective/taco/factory.h"
#include "transport/collective/zip/factory.h"
#include "worker/ranks/communicators.h"
#include "worker/stage/device/torch_cuda.h"
#include "worker/stage/group/group_stage.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

struct Flags {
  std::string text, csv, devices, device, limit, state;
  uint32_t layers = 4, hidden = 128, heads = 8, context = 128, microbatch_size = 8;
  uint64_t steps = 2000, every = 200, validated = 0;
  double lr = 2e-3;
  std::string dtype = "fp32";
  std::vector<uint32_t> ranks = {2};
  std::vector<std::string> collectives = {"none"};
  std::vector<double> shared = {1};
  std::vector<uint64_t> seeds = {1};
};

struct Variant {
  uint32_t ranks = 2;
  std::string collective = "none";
  double shared = 1;
  uint64_t seed = 1;
};

// How one direction's tensors travel. With a codec, which is not a way of run files, only on one
// device.
struct Way {
  GroupCompression compression;
  std::shared_ptr<const codec::Codec> codec;
};
struct Ways {
  Way forward, backward;
};

StatusOr<Way> ParseWay(const std::string& text) {
  if (StatusOr<std::unique_ptr<const codec::Codec>> codec = codec::ParseCodec(text);
      codec.ok() && !text.starts_with("taco") && !text.starts_with("zip") && text != "none") {
    return Way{{}, *std::move(codec)};
  }
  std::vector<std::string> problems;
  const Way way{ReadGroupCompression(text, &problems), nullptr};
  if (way.compression == GroupCollective::kAuto) {
    problems.emplace_back("expected the same collective whatever is faster, got 'auto'");
  }
  if (problems.empty()) return way;
  return InvalidArgument("--collectives: {}: {}", text, fmt::join(problems, "; "));
}

// One for both directions, or two with a slash between.
StatusOr<Ways> ParseWays(const std::string& text) {
  const size_t slash = text.find('/');
  LH_ASSIGN_OR_RETURN(const Way forward, ParseWay(text.substr(0, slash)));
  if (slash == std::string::npos) return Ways{forward, forward};
  LH_ASSIGN_OR_RETURN(const Way backward, ParseWay(text.substr(slash + 1)));
  return Ways{forward, backward};
}

// A part "key=value" belongs to the one before it, as "taco:format=int8,block=64" has two parts.
std::vector<std::string> JoinOptions(const std::vector<std::string>& parts) {
  std::vector<std::string> joined;
  for (const std::string& part : parts) {
    const bool continues = part.find('=') != std::string::npos && part.find('=') < part.find(':');
    if (continues && !joined.empty()) {
      joined.back() += "," + part;
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

StatusOr<StageOptions> OptionsOf(const Flags& flags, const Variant& variant) {
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
  options.group.shared_channels = variant.shared;
  LH_ASSIGN_OR_RETURN(const Ways ways, ParseWays(variant.collective));
  if ((ways.forward.codec != nullptr || ways.backward.codec != nullptr) && flags.device.empty()) {
    return InvalidArgument("--collectives: {}: codecs need --device", variant.collective);
  }
  options.group.forward = ways.forward.compression;
  options.group.backward = ways.backward.compression;
  options.ranks.resize(variant.ranks);
  if (!flags.devices.empty()) {
    LH_ASSIGN_OR_RETURN(options.ranks, ParseDeviceNames(flags.devices));
  } else if (!flags.device.empty()) {
    LH_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(flags.device));
    std::ranges::fill(options.ranks, device);
  }
  options.device = options.ranks.front();
  options.group.tensor = static_cast<uint32_t>(options.ranks.size());
  return options;
}

StatusOr<std::shared_ptr<collective::Communicator>> OverOneMemory(
    const Way& way, const std::shared_ptr<collective::Communicator>& exact,
    const cuda::Device* device) {
  if (way.codec != nullptr) return testing::CodedSums(exact, device, way.codec);
  const GroupCompression& compression = way.compression;
  switch (compression.what) {
    case GroupCollective::kTaco:
      return collective::taco::Create(
          exact, device, {.format = compression.taco.format, .block = compression.taco.block});
    case GroupCollective::kZip:
      return collective::zip::Create(exact, device, {});
    default:
      return exact;
  }
}

// For ranks that share one device, which no run has.
MakeCommunicators InOneMemory(const Ways& ways, uint32_t ranks) {
  const auto meeting = std::make_shared<collective::testing::OneMemory>(ranks, absl::Minutes(1));
  return [ways, meeting](const std::shared_ptr<collective::Member>& member, const DeviceName& name,
                         Deadline /*deadline*/) -> StatusOr<RankCommunicators> {
    // LibTorch has one thread for the backward of a device. There the first rank would wait for the
    // second one, which comes behind it. So each rank's backward runs on the rank's own thread.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    std::optional<cuda::Device> device;
    if (name.cuda_index) {
      LH_ASSIGN_OR_RETURN(device, cuda::Device::Open(*name.cuda_index));
    }
    const cuda::Device* const at = device ? &*device : nullptr;
    RankCommunicators made{.recordable = false};
    LH_ASSIGN_OR_RETURN(made.exact, meeting->Join(member, at));
    LH_ASSIGN_OR_RETURN(made.forward, OverOneMemory(ways.forward, made.exact, at));
    LH_ASSIGN_OR_RETURN(made.backward, OverOneMemory(ways.backward, made.exact, at));
    return made;
  };
}

class Training {
 public:
  Training(const Flags& flags, const TokenFile& tokens, StageOptions options, Ways ways)
      : flags_(flags), tokens_(tokens), options_(std::move(options)), ways_(std::move(ways)) {
    inputs_.resize(size_t{flags.microbatch_size} * flags.context);
    targets_.resize(inputs_.size());
  }
  Status Start() {
    if (options_.ranks.size() == 1) {
      options_.ranks.clear();
      LH_ASSIGN_OR_RETURN(stage_, Stage::Create(options_));
    } else {
      LH_ASSIGN_OR_RETURN(
          stage_, MakeGroupStage(options_, flags_.device.empty() ? CommunicatorsFor(options_)
                                                                 : InOneMemory(ways_, ranks())));
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
  StatusOr<StageSnapshot> Snapshot() const { return stage_->Snapshot(); }
  Status Restore(const StageSnapshot& snapshot) { return stage_->Restore(snapshot); }
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
  Ways ways_;
  std::unique_ptr<Stage> stage_;
  std::vector<int32_t> inputs_, targets_;
};

// All that decides what a run computes.
std::string NameOf(const Flags& flags, const LossRow& run) {
  return fmt::format(
      "{} ranks, {}, {} shared, seed {}: {} steps of {} x {}, {} x {}, {} heads, {}, {}", run.ranks,
      run.collective, run.shared, run.seed, flags.steps, flags.microbatch_size, flags.context,
      flags.layers, flags.hidden, flags.heads, flags.dtype, flags.lr);
}

// Trains one run from its beginning, or from where the state in --state ends. Tells each row when
// it is known. Returns false if the time was over before the run's end; the state is saved then.
StatusOr<bool> Train(const Flags& flags, const TokenFile& tokens, const Variant& variant,
                     MonoTime end, const std::function<Status(const LossRow&)>& tell) {
  const MonoTime began = Now();
  LH_ASSIGN_OR_RETURN(StageOptions options, OptionsOf(flags, variant));
  LH_ASSIGN_OR_RETURN(Ways ways, ParseWays(variant.collective));
  Training training(flags, tokens, std::move(options), std::move(ways));
  LH_RETURN_IF_ERROR(training.Start());
  LossRow row{.ranks = training.ranks(),
              .collective = variant.collective,
              .shared = variant.shared,
              .seed = variant.seed,
              .parameters = training.parameter_count()};
  const std::string name = NameOf(flags, row);
  double seconds_before = 0;
  if (!flags.state.empty()) {
    LH_ASSIGN_OR_RETURN(std::optional<TrainingState> state, LoadState(flags.state, name));
    if (state) {
      LH_RETURN_IF_ERROR(training.Restore(state->snapshot));
      row.step = state->snapshot.step;
      row.sent_bytes_a_step = state->sent_bytes_a_step;
      seconds_before = state->seconds;
    }
  }
  const auto seconds = [&] { return seconds_before + absl::ToDoubleSeconds(Now() - began); };
  const uint64_t before = training.SentBytes();
  while (row.step < flags.steps) {
    ++row.step;
    LH_ASSIGN_OR_RETURN(row.train_loss, training.Step(row.step));
    if (row.step == 1) row.sent_bytes_a_step = training.SentBytes() - before;
    if (row.step % flags.every == 0 || row.step == flags.steps) {
      LH_ASSIGN_OR_RETURN(row.validation_loss, training.Validate());
      row.seconds = seconds();
      LH_RETURN_IF_ERROR(tell(row));
    }
    if (flags.state.empty() || Now() < end || row.step == flags.steps) continue;
    LH_ASSIGN_OR_RETURN(StageSnapshot snapshot, training.Snapshot());
    LH_RETURN_IF_ERROR(SaveState(flags.state, {.training = name,
                                               .snapshot = std::move(snapshot),
                                               .sent_bytes_a_step = row.sent_bytes_a_step,
                                               .seconds = seconds()}));
    fmt::print("{} after step {}; call again to go on\n", name, row.step);
    return false;
  }
  if (!flags.state.empty()) ::unlink(flags.state.c_str());
  return true;
}

// Returns the rows that earlier calls wrote; none if there is no file.
std::vector<Variant> VariantsOf(const Flags& flags) {
  std::vector<Variant> variants;
  for (const uint64_t seed : flags.seeds) {
    for (const uint32_t ranks : flags.ranks) {
      for (const std::string& collective : JoinOptions(flags.collectives)) {
        for (const double shared : flags.shared) {
          variants.push_back({ranks, collective, shared, seed});
        }
      }
    }
  }
  return variants;
}

Status TrainAll(const Flags& flags, const TokenFile& tokens, std::vector<LossRow>* rows) {
  LH_ASSIGN_OR_RETURN(const absl::Duration limit, ParseLimit(flags.limit));
  for (const Variant& variant : VariantsOf(flags)) {
    LH_RETURN_IF_ERROR(OptionsOf(flags, variant).status());
  }
  const MonoTime began = Now();
  absl::Duration longest = absl::ZeroDuration();
  Status failed;
  for (const Variant& variant : VariantsOf(flags)) {
    LH_ASSIGN_OR_RETURN(const StageOptions options, OptionsOf(flags, variant));
    const LossRow run{.ranks = options.group.tensor,
                      .collective = variant.collective,
                      .shared = variant.shared,
                      .seed = variant.seed};
    if (std::ranges::any_of(*rows, [&](const LossRow& row) {
          return row.IsOfRun(run) && row.step == flags.steps;
        })) {
      continue;
    }
    const MonoTime start = Now();
    // With a state a run goes on in the next call.
    if (start - began + (flags.state.empty() ? longest : absl::ZeroDuration()) > limit) {
      fmt::print("no time is left for {} with seed {}; call again\n", variant.collective,
                 variant.seed);
      return failed;
    }
    const bool begins = flags.state.empty() || ::access(flags.state.c_str(), F_OK) != 0;
    // Rows of a call that was cut off.
    if (begins) std::erase_if(*rows, [&](const LossRow& row) { return row.IsOfRun(run); });
    const StatusOr<bool> trained =
        Train(flags, tokens, variant, began + limit, [&](const LossRow& row) {
          // A call that was cut off may have written rows behind its last state.
          std::erase_if(*rows, [&](const LossRow& older) {
            return older.IsOfRun(row) && older.step >= row.step;
          });
          rows->push_back(row);
          fmt::print("{}", ToCsv(row));
          std::fflush(stdout);
          return Keep(*rows, flags.csv);
        });
    longest = std::max(longest, Now() - start);
    if (!trained.ok()) {
      // The others may go on.
      failed = InvalidArgument("{} of {} ranks, seed {}: {}", variant.collective, run.ranks,
                               variant.seed, Message(trained.status()));
      fmt::print("{}\n", Message(failed));
      continue;
    }
    if (!*trained) return failed;
  }
  return failed;
}

Status Run(const Flags& flags) {
  if (flags.devices.starts_with("cuda") || flags.device.starts_with("cuda")) {
    LH_RETURN_IF_ERROR(LoadTorchCuda(DefaultTorchCudaPath()));
  }
  const std::string path =
      fmt::format("{}.{}.tokens", flags.csv.empty() ? "/tmp/group" : flags.csv, ::getpid());
  LH_RETURN_IF_ERROR(WriteTokenFile({flags.text}, "bytes", 0.05, path).status());
  LH_ASSIGN_OR_RETURN(const TokenFile tokens, TokenFile::Open(path, /*verify=*/false));
  ::unlink(path.c_str());
  LH_ASSIGN_OR_RETURN(std::vector<LossRow> rows, ReadKept<LossRow>(flags.csv));
  fmt::print("{}", LossRow::Header());
  const Status status = TrainAll(flags, tokens, &rows);
  fmt::print("\n{}\n{}", LossTable(rows, flags.steps), LastChanges(rows, flags.steps));
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
  CLI::Option* const ranks = app.add_option("--ranks", flags.ranks, "numbers of ranks")
                                 ->delimiter(',')
                                 ->check(CLI::Range(1, 64));
  CLI::Option* const devices =
      app.add_option("--devices", flags.devices, "GPUs, a rank on each: cuda:0-1")->excludes(ranks);
  app.add_option("--device", flags.device,
                 "all ranks on this one, cpu or cuda:N, where each reads the others' tensors; "
                 "without it ranks are threads on the CPU with sockets")
      ->excludes(devices);
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
  app.add_option("--collectives", flags.collectives,
                 "as group.collective of run files, without auto; with --device also codecs, as "
                 "gauss:bits=6; forward/backward with a slash")
      ->delimiter(',');
  app.add_option("--shared", flags.shared, "shares of channels that are summed")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seeds", flags.seeds)->delimiter(',');
  app.add_option("--csv", flags.csv, "rows, kept from call to call; what is there is not trained");
  app.add_option(
      "--limit", flags.limit,
      "8m: begins no run that would not end in this time; with --state a run pauses then");
  app.add_option(
      "--state", flags.state,
      "a file for the run that is under way when the time is over; the next call goes on "
      "with it");
  CLI11_PARSE(app, argc, argv);
  const longhaul::Status status = longhaul::worker::Run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "group_training: {}\n", longhaul::Message(status));
  return 1;
}
