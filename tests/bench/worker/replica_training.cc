// What replicas of a model lose in learning by what they send each other, and how many bytes that
// is: both of the same runs. One process, no links: all replicas are on one device and take turns.
// Ends with a table of bytes, losses and their differences to those of the first form.
//
//   replica_training --text FILE --csv rows.csv --seeds 1,2,3
//       --forms bf16/bf16 tagc/bf16 tagc:owner=sparse/bf16
//   replica_training --text FILE --csv rows.csv --device cuda:0 --dtype bf16 --limit 8m
//       --layers 17 --hidden 768 --heads 12 --context 1024 --batch 8 --steps 300 --lr 6e-4
//
// A form is pipeline.gradients/pipeline.parameters of a run file. Runs whose last row is in the
// file are not trained again.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/device_name.h"
#include "kept_rows.h"
#include "replica_rows.h"
#include "run/tokens/token_file.h"
#include "transport/replicas/message.h"
#include "worker/pipeline/replica_exchange.h"
#include "worker/stage/device/torch_cuda.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

struct Flags {
  std::string text, csv, device = "cpu", limit, dtype = "fp32";
  uint32_t replicas = 2, layers = 4, hidden = 64, heads = 4, context = 64, microbatch_size = 8,
           threads = 1;
  uint64_t steps = 1000, every = 250, validated = 0;
  double lr = 2e-3;
  std::vector<std::string> forms = {"none/fp32", "bf16/bf16", "tagc/bf16",
                                    "tagc:owner=sparse/bf16"};
  std::vector<uint64_t> seeds = {1};
};

StatusOr<ReplicasSpec> ParseForm(const std::string& form, uint32_t replicas) {
  const size_t slash = form.find('/');
  if (slash == std::string::npos) {
    return InvalidArgument("--forms: expected gradients/parameters, such as tagc/bf16, got '{}'",
                           form);
  }
  ReplicasSpec spec{.count = replicas};
  LH_ASSIGN_OR_RETURN(spec.gradients, replicas::ParseGradients(form.substr(0, slash)));
  LH_ASSIGN_OR_RETURN(spec.parameters, replicas::ParseParameters(form.substr(slash + 1)));
  if (spec.trains_apart()) {
    return InvalidArgument(
        "--forms: replicas of '{}' train apart; tests/bench/e2e/replica_losses.py trains those",
        form);
  }
  return spec;
}

StatusOr<StageOptions> StageFor(const Flags& flags, uint64_t seed) {
  StageOptions options;
  options.model.family = ModelFamily::kLlama;
  options.model.layers = options.layers = flags.layers;
  options.model.hidden = flags.hidden;
  options.model.heads = options.model.kv_heads = flags.heads;
  options.model.intermediate = flags.hidden * 3;
  options.model.context = flags.context;
  options.train.steps = flags.steps;
  options.train.microbatches = 1;
  options.train.microbatch_size = flags.microbatch_size;
  options.train.seed = seed;
  options.train.dtype = flags.dtype == "bf16" ? ComputeDtype::kBf16 : ComputeDtype::kFp32;
  options.train.optimizer.lr = flags.lr;
  options.train.schedule.warmup = flags.steps / 20;
  options.threads = flags.threads;
  options.shares_step = true;
  LH_ASSIGN_OR_RETURN(options.device, ParseDeviceName(flags.device));
  return options;
}

class Replicas {
 public:
  Replicas(const Flags& flags, const TokenFile& tokens, const StageOptions& options)
      : flags_(flags), tokens_(tokens), options_(options) {
    inputs_.resize(size_t{flags.microbatch_size} * flags.context);
    targets_.resize(inputs_.size());
  }

  Status Start(const ReplicasSpec& spec) {
    for (uint32_t r = 0; r < spec.count; ++r) {
      LH_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, Stage::Create(options_));
      stages_.push_back(std::move(stage));
      LH_ASSIGN_OR_RETURN(
          std::unique_ptr<ReplicaExchange> exchange,
          ReplicaExchange::Create(
              stages_[r].get(), options_, spec, r,
              [this, r](uint32_t to, longhaul::Step, std::vector<std::byte> message) {
                Count(message);
                under_way_.emplace_back(to, ReplicaSaid{r, std::move(message)});
              },
              [](const Status&) {}, nullptr));
      exchanges_.push_back(std::move(exchange));
    }
    return absl::OkStatus();
  }

  // Returns the mean loss of the replicas.
  StatusOr<double> Step(uint64_t number) {
    const longhaul::Step step(number);
    double losses = 0, squared_norm = 0;
    for (uint32_t r = 0; r < stages_.size(); ++r) {
      ReadBatch(number, r);
      LH_RETURN_IF_ERROR(stages_[r]->Forward(Microbatch(0), {inputs_, {}, targets_}).status());
      LH_ASSIGN_OR_RETURN(const double loss, stages_[r]->Loss(Microbatch(0)));
      losses += loss;
      LH_RETURN_IF_ERROR(stages_[r]->Backward(Microbatch(0), {}).status());
      LH_RETURN_IF_ERROR(exchanges_[r]->Begin(step));
    }
    LH_RETURN_IF_ERROR(Deliver());
    for (const auto& exchange : exchanges_) {
      LH_ASSIGN_OR_RETURN(const SquaredNorm norm, exchange->AddSquaredNorm(0));
      squared_norm += norm.own;
    }
    for (const auto& exchange : exchanges_) {
      LH_RETURN_IF_ERROR(
          exchange->StepOwn(step, LearningRate(options_.train, step),
                            ClipScale(options_.train.optimizer.clip_norm, squared_norm)));
    }
    LH_RETURN_IF_ERROR(Deliver());
    for (const auto& exchange : exchanges_) LH_RETURN_IF_ERROR(exchange->End(step));
    return losses / static_cast<double>(stages_.size());
  }

  // Over the windows of the validation text that fill microbatches: all, or the first ones.
  StatusOr<double> Validate() {
    const uint64_t all = tokens_.ValidationWindows(flags_.context);
    const uint64_t windows = flags_.validated == 0 ? all : std::min(flags_.validated, all);
    const uint64_t batches = windows / flags_.microbatch_size;
    if (batches == 0) {
      return InvalidArgument("--text: its last 5 % have {} windows of {} tokens; expected {}", all,
                             flags_.context, flags_.microbatch_size);
    }
    double sum = 0;
    for (uint64_t batch = 0; batch < batches; ++batch) {
      for (uint32_t row = 0; row < flags_.microbatch_size; ++row) {
        tokens_.ReadValidationWindow(batch * flags_.microbatch_size + row, flags_.context,
                                     Row(inputs_, row), Row(targets_, row));
      }
      double loss = 0;
      LH_RETURN_IF_ERROR(stages_[0]->Evaluate(Slice(), {inputs_, {}, targets_}, &loss).status());
      sum += loss;
    }
    return sum / static_cast<double>(batches);
  }

  uint64_t parameter_count() const { return stages_[0]->parameter_count(); }
  uint64_t gradient_bytes() const { return gradient_bytes_; }
  uint64_t parameter_bytes() const { return parameter_bytes_; }

 private:
  void Count(const std::vector<std::byte>& message) {
    const auto header = replicas::ParseMessage(message);
    const bool of_parameters = header.ok() && header->kind == replicas::MessageKind::kParameters;
    (of_parameters ? parameter_bytes_ : gradient_bytes_) += message.size();
  }
  Status Deliver() {
    while (!under_way_.empty()) {
      auto [to, said] = std::move(under_way_.front());
      under_way_.pop_front();
      LH_RETURN_IF_ERROR(exchanges_[to]->Take(std::move(said)));
    }
    return absl::OkStatus();
  }
  // Replicas read other sequences: those that one model with a batch as large as all would read.
  void ReadBatch(uint64_t step, uint32_t replica) {
    const uint64_t windows = tokens_.TrainingWindows(flags_.context);
    const uint64_t first = ((step - 1) * stages_.size() + replica) * flags_.microbatch_size;
    for (uint32_t row = 0; row < flags_.microbatch_size; ++row) {
      tokens_.ReadTrainingWindow(TrainingWindowOf(options_.train.seed, first + row, windows),
                                 flags_.context, Row(inputs_, row), Row(targets_, row));
    }
  }
  std::span<int32_t> Row(std::vector<int32_t>& batch, uint32_t row) const {
    return std::span(batch).subspan(size_t{row} * flags_.context, flags_.context);
  }

  const Flags& flags_;
  const TokenFile& tokens_;
  const StageOptions options_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<std::unique_ptr<ReplicaExchange>> exchanges_;
  std::deque<std::pair<uint32_t, ReplicaSaid>> under_way_;
  std::vector<int32_t> inputs_, targets_;
  uint64_t gradient_bytes_ = 0, parameter_bytes_ = 0;
};

// Trains one run; adds its rows as they come.
Status Train(const Flags& flags, const TokenFile& tokens, ReplicaRow row,
             std::vector<ReplicaRow>* rows) {
  const MonoTime began = Now();
  LH_ASSIGN_OR_RETURN(const ReplicasSpec spec, ParseForm(row.form, flags.replicas));
  LH_ASSIGN_OR_RETURN(const StageOptions options, StageFor(flags, row.seed));
  Replicas replicas(flags, tokens, options);
  LH_RETURN_IF_ERROR(replicas.Start(spec));
  row.parameters = replicas.parameter_count();
  for (row.step = 1; row.step <= flags.steps; ++row.step) {
    LH_ASSIGN_OR_RETURN(row.train_loss, replicas.Step(row.step));
    if (row.step % flags.every != 0 && row.step != flags.steps) continue;
    LH_ASSIGN_OR_RETURN(row.validation_loss, replicas.Validate());
    row.gradient_bytes = replicas.gradient_bytes() / row.step;
    row.parameter_bytes = replicas.parameter_bytes() / row.step;
    row.seconds = absl::ToDoubleSeconds(Now() - began);
    rows->push_back(row);
    fmt::print("{}", ToCsv(row));
    std::fflush(stdout);
    LH_RETURN_IF_ERROR(Keep(*rows, flags.csv));
  }
  return absl::OkStatus();
}

Status TrainAll(const Flags& flags, const TokenFile& tokens, std::vector<ReplicaRow>* rows) {
  LH_ASSIGN_OR_RETURN(const absl::Duration limit, ParseLimit(flags.limit));
  absl::Duration longest;
  for (const std::string& form : flags.forms) {
    LH_RETURN_IF_ERROR(ParseForm(form, flags.replicas).status());
  }
  const MonoTime began = Now();
  for (const uint64_t seed : flags.seeds) {
    for (const std::string& form : flags.forms) {
      const ReplicaRow run{.replicas = flags.replicas, .form = form, .lr = flags.lr, .seed = seed};
      if (std::ranges::any_of(*rows, [&](const ReplicaRow& row) {
            return row.IsOfRun(run) && row.step == flags.steps;
          })) {
        continue;
      }
      const MonoTime start = Now();
      if (start - began + longest > limit) {
        fmt::print("no time is left for {} with seed {}; call again\n", form, seed);
        return absl::OkStatus();
      }
      // Rows of a call that was cut off.
      std::erase_if(*rows, [&](const ReplicaRow& row) { return row.IsOfRun(run); });
      LH_RETURN_IF_ERROR(Train(flags, tokens, run, rows));
      longest = std::max(longest, Now() - start);
    }
  }
  return absl::OkStatus();
}

Status Run(const Flags& flags) {
  if (flags.device.starts_with("cuda")) {
    LH_RETURN_IF_ERROR(LoadTorchCuda(DefaultTorchCudaPath()));
  }
  const std::string path =
      fmt::format("{}.{}.tokens", flags.csv.empty() ? "/tmp/replicas" : flags.csv, ::getpid());
  LH_RETURN_IF_ERROR(WriteTokenFile({flags.text}, "bytes", 0.05, path).status());
  LH_ASSIGN_OR_RETURN(const TokenFile tokens, TokenFile::Open(path, /*verify=*/false));
  ::unlink(path.c_str());
  LH_ASSIGN_OR_RETURN(std::vector<ReplicaRow> rows, ReadKept<ReplicaRow>(flags.csv));
  fmt::print("{}", ReplicaRow::Header());
  const Status status = TrainAll(flags, tokens, &rows);
  std::erase_if(rows, [&](const ReplicaRow& row) {
    return row.replicas != flags.replicas || row.lr != flags.lr;
  });
  fmt::print("\n{}", ReplicaTable(rows, flags.forms.front(), flags.steps));
  return status;
}

}  // namespace
}  // namespace longhaul::worker

int main(int argc, char** argv) {
  longhaul::worker::Flags flags;
  CLI::App app("Losses and bytes of replicas, by what they send each other");
  app.add_option("--text", flags.text, "a text file; its last 5 % are for validation")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--forms", flags.forms,
                 "gradients/parameters as in run files; the others are compared with the first");
  app.add_option("--seeds", flags.seeds)->delimiter(',');
  app.add_option("--replicas", flags.replicas)->check(CLI::Range(2, 64));
  app.add_option("--device", flags.device, "cpu or cuda:N, for all replicas");
  app.add_option("--threads", flags.threads, "of passes, and of coding on a CPU");
  app.add_option("--layers", flags.layers);
  app.add_option("--hidden", flags.hidden);
  app.add_option("--heads", flags.heads);
  app.add_option("--context", flags.context);
  app.add_option("--batch", flags.microbatch_size, "sequences of a replica and step");
  app.add_option("--steps", flags.steps);
  app.add_option("--every", flags.every, "steps between validations")->check(CLI::PositiveNumber);
  app.add_option("--validate", flags.validated, "sequences of validation; 0: all there are");
  app.add_option("--lr", flags.lr);
  app.add_option("--dtype", flags.dtype)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--csv", flags.csv, "rows, kept from call to call; what is there is not trained");
  app.add_option("--limit", flags.limit, "8m: begins no run that would not end in this time");
  CLI11_PARSE(app, argc, argv);
  const longhaul::Status status = longhaul::worker::Run(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "replica_training: {}\n", longhaul::Message(status));
  return 1;
}
