#include "worker/pipeline/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "worker/pipeline/checkpoint_writer.h"
#include "worker/pipeline/preference_report.h"
#include "worker/pipeline/sample_round.h"
#include "worker/pipeline/tied_exchange.h"
#include "worker/pipeline/token_ids.h"

namespace longhaul::worker {
namespace {

using schedule::StagePolicy;
using schedule::Task;
using schedule::Work;

// Stage::Input::random: the same in all stages, after a resume, and where the step is run again.
uint64_t RandomOf(const RunSpec& spec, Step step, uint32_t replica, Microbatch microbatch) {
  const std::string all = fmt::format("dropout {} {} {} {}", spec.train.seed, step.value(), replica,
                                      microbatch.value());
  return Checksum64(std::as_bytes(std::span(all)));
}

// A port whose peer is upstream belongs to the head's end.
std::unique_ptr<TiedExchange> ExchangeOver(BoundaryPort* port, TiedMatrix* matrix) {
  LH_CHECK(matrix != nullptr, "a tied edge at a stage without such a matrix");
  return std::make_unique<TiedExchange>(
      matrix, /*embedding=*/!port->upstream(),
      TiedExchange::Link{
          .send_piece =
              [port](Step step, Microbatch piece, BoundaryTensor tensor) {
                port->SendTensor(Pass{step}, piece, std::move(tensor));
              },
          .send_digest = [port](Step step,
                                uint64_t digest) { port->SendMatrixDigest(step, digest); }});
}

}  // namespace

Executor::Executor(ExecutorOptions options)
    : options_(std::move(options)),
      resident_(*options_.resident),
      events_(options_.events),
      trace_(options_.trace ? options_.trace : std::make_shared<TraceLog>()),
      work_(options_.work ? options_.work : std::make_shared<WorkAtHand>()),
      step_(options_.start_step),
      stops_after_(options_.ends_after) {
  for (const auto& port : options_.ports) {
    if (port->kind() == EdgeKind::kTied) {
      tied_ = ExchangeOver(port.get(), resident_.model().tied_matrix());
    } else {
      (port->upstream() ? up_ : down_) = port.get();
    }
  }
  checkpoint_writer_ = std::make_unique<CheckpointWriter>(
      options_.shards, options_.run,
      ShardOwner(StageIndex(options_.cell.stage),
                 options_.exchange ? std::optional(options_.cell.replica) : std::nullopt),
      [this](const CheckpointWriter::Job& job, const StatusOr<std::vector<ShardFile>>& files) {
        CheckpointWritten(job, files);
      });
}

Executor::~Executor() = default;

Status Executor::Run() {
  Status status = Loop();
  {
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kDisk);
    checkpoint_writer_->Flush();
  }
  // Whether the last checkpoint could be written is known only now.
  for (const PipelineEvent& event : events_->TakeAll()) {
    const auto* failed = std::get_if<Failed>(&event);
    if (failed != nullptr && status.ok()) status = failed->reason;
  }
  if (status.ok()) {
    v1::WorkerMessage message;
    message.mutable_finished()->set_step(step_.value());
    message.mutable_finished()->set_stopped(step_.value() < options_.spec.train.steps);
    options_.report(std::move(message));
  }
  return status;
}

Status Executor::Loop() {
  v1::WorkerMessage started;
  started.mutable_stage_started();
  options_.report(std::move(started));
  step_began_ = mark_ = Now();
  codec_busy_before_ = options_.codec_thread->BusyTime();
  collectives_before_ = resident_.model().collectives();
  bool stopped = false;
  LH_RETURN_IF_ERROR(PreparePasses());
  // Validates before the first step; and in an attempt without steps left, whose predecessor was
  // lost after its last checkpoint.
  if ((step_ == Step(0) || step_ == Step(options_.spec.train.steps)) &&
      ValidatesAfter(options_.spec, step_)) {
    LH_RETURN_IF_ERROR(Validate());
  }
  if (options_.exchange && options_.exchange->AwaitsMerge()) {
    LH_RETURN_IF_ERROR(options_.exchange->BeginMerge(step_));
  }
  while (!stopped && step_.value() < options_.spec.train.steps) {
    step_ = step_.Next();
    work_->BeginStep(step_);
    LH_RETURN_IF_ERROR(TrainStep());
    stopped = StopsNow();
    control_.reset();
    if (ValidatesAfter(options_.spec, step_)) LH_RETURN_IF_ERROR(Validate());
    LH_RETURN_IF_ERROR(TakeSamplesIfDue());
  }
  return absl::OkStatus();
}

Status Executor::RetuneIfDue() {
  if (!retune_) return absl::OkStatus();
  Setting& setting = options_.setting;
  setting.depth = std::clamp(retune_->depth, 1u, options_.spec.train.microbatches);
  setting.activation_lead = retune_->activation_lead.value_or(setting.activation_lead);
  retuned_ = {retune_->id, step_};
  retune_.reset();
  ReportRetuned();
  return PreparePasses();
}

Status Executor::PreparePasses() {
  // Both the stage and its twin, if steps overlap, need their graphs.
  for (const Step step : {step_, step_.Next()}) {
    LH_RETURN_IF_ERROR(resident_.ModelFor(step).PreparePasses(
        std::min(options_.setting.depth, options_.spec.train.microbatches)));
  }
  return absl::OkStatus();
}

Status Executor::TrainStep() {
  LH_RETURN_IF_ERROR(RetuneIfDue());
  if (options_.rehearsal) {
    LH_RETURN_IF_ERROR(options_.rehearsal->OnState(step_, resident_.model()));
  }
  LH_RETURN_IF_ERROR(RunPasses());
  LH_RETURN_IF_ERROR(SumGradients());
  LH_ASSIGN_OR_RETURN(const wire::StepMessage agreed, AgreeOnNormAndDecisions());
  // A step that has begun is not thrown away.
  const Step ends = next_ ? step_.Next() : step_;
  if (agreed.stop && !stops_after_) stops_after_ = ends;
  if (agreed.samples > 0) {
    samples_asked_ = {ends, agreed.samples + (samples_asked_ ? samples_asked_->second : 0)};
  }
  LH_RETURN_IF_ERROR(StepOptimizer(agreed));
  return options_.exchange && !steps_together() ? EndStepApart() : SaveState();
}

schedule::PolicyOptions Executor::TrainingPolicy() const {
  return {.kind = options_.spec.pipeline.schedule,
          .stage = StageIndex(options_.cell.stage),
          .stages = options_.stages,
          .microbatches = options_.spec.train.microbatches,
          .slices = options_.spec.pipeline.SlicesNow(),
          .depth = options_.setting.depth,
          .activation_lead = options_.setting.activation_lead};
}

Status Executor::RunPasses() {
  const RunSpec& spec = options_.spec;
  now_ = next_ ? std::exchange(next_, std::nullopt) : Begin(Pass{step_}, TrainingPolicy());
  if (TraitsOf(spec.pipeline.schedule).overlaps_steps && step_.value() < spec.train.steps &&
      !StopsNow() && !ValidatesAfter(spec, step_) && !SamplesFollow()) {
    next_ = Begin(Pass{step_.Next()}, TrainingPolicy());
  }
  LH_RETURN_IF_ERROR(RunPass());
  loss_sum_ = std::exchange(now_, std::nullopt)->loss_sum;
  return absl::OkStatus();
}

Status Executor::SumGradients() {
  if (tied_) LH_RETURN_IF_ERROR(SumOfTied());
  return steps_together() ? SumOverReplicas() : absl::OkStatus();
}

Status Executor::SumOfTied() {
  tied_->Begin(step_);
  while (true) {
    {
      const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kTied);
      LH_RETURN_IF_ERROR(tied_->Advance());
    }
    if (tied_->IsDone()) return absl::OkStatus();
    LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_GRADIENT, WorkAtHand::Wait::kTied));
  }
}

Status Executor::StepOptimizer(const wire::StepMessage& agreed) {
  LH_RETURN_IF_ERROR(CheckState());
  if (agreed.nonfinite) return SkipOrFail(agreed);
  skipped_in_a_row_ = 0;
  const double learning_rate = LearningRate(options_.spec.train, step_);
  Stage& model = resident_.ModelFor(step_);
  const double scale = ClipScale(options_.spec.train.optimizer.clip_norm, agreed.squared_norm);
  if (steps_together()) {
    LH_RETURN_IF_ERROR(StepWithReplicas(learning_rate, scale));
  } else {
    const ScopedSpan timer(&mark_, &times_.optimizer, trace_.get(), v1::Span::OPTIMIZER);
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kOptimizer);
    // The twin may have the newer parameters and the optimizer.
    LH_RETURN_IF_ERROR(resident_.TakeTurn(step_));
    LH_RETURN_IF_ERROR(model.OptimizerStep(step_, learning_rate, scale));
  }
  if (options_.rehearsal) LH_RETURN_IF_ERROR(options_.rehearsal->OnUpdate(step_, model));
  LH_RETURN_IF_ERROR(NoteState());
  ReportStep(agreed, learning_rate);
  return absl::OkStatus();
}

Status Executor::SkipOrFail(const wire::StepMessage& agreed) {
  const bool skips = options_.spec.train.on_nonfinite == OnNonfinite::kSkip;
  if (skips && ++skipped_in_a_row_ <= kMostSkippedInARow) {
    LH_RETURN_IF_ERROR(resident_.TakeTurn(step_));
    LH_RETURN_IF_ERROR(steps_together() ? options_.exchange->Skip(step_)
                                        : resident_.ModelFor(step_).SkipStep(step_));
    LH_RETURN_IF_ERROR(NoteState());
    ReportStep(agreed, 0, /*skipped=*/true);
    return absl::OkStatus();
  }
  ReportStep(agreed, 0);
  return Internal(
      "the gradient norm of step {} is not finite, so nothing was updated{}; a lower learning rate "
      "or finer codecs may help",
      step_.value(),
      skips ? fmt::format(", as in the {} steps before, which were skipped", kMostSkippedInARow)
            : std::string());
}

Status Executor::Validate() {
  if (options_.cell.replica > 0) return absl::OkStatus();
  const uint32_t microbatches = ValidationMicrobatches(options_.spec, options_.validation_tokens);
  if (microbatches == 0) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(const double loss, Evaluate(PassKind::kValidation, microbatches));
  const PreferenceSums preferences = resident_.ModelFor(step_).TakePreferences();
  std::optional<double> clean;
  if (!options_.compresses_activations) {
    // Nothing is compressed, so a clean validation would give the same loss.
    clean = loss;
  } else if (ValidatesCleanAfter(options_.spec, step_)) {
    LH_ASSIGN_OR_RETURN(clean, Evaluate(PassKind::kCleanValidation, microbatches));
  }
  if (last()) {
    v1::WorkerMessage message;
    v1::ValidationReport& report = *message.mutable_validation();
    report.set_step(step_.value());
    report.set_loss(loss);
    report.set_samples(microbatches * options_.spec.train.microbatch_size);
    if (clean) report.set_clean_loss(*clean);
    if (preferences.pairs > 0) *report.mutable_preferences() = ReportOf(preferences);
    options_.report(std::move(message));
  }
  resident_.ModelFor(step_).TakePreferences();  // those of the clean validation
  ForgetTimes();
  return absl::OkStatus();
}

void Executor::ForgetTimes() {
  times_ = {};
  peak_in_flight_ = 0;
  codec_busy_before_ = options_.codec_thread->BusyTime();
  collectives_before_ = resident_.model().collectives();
  step_began_ = mark_ = Now();
}

StatusOr<double> Executor::Evaluate(PassKind kind, uint32_t microbatches) {
  schedule::PolicyOptions options = TrainingPolicy();
  options.microbatches = microbatches;
  options.activation_lead = 0;
  options.forward_only = true;
  now_ = Begin(Pass{step_, kind}, options);
  LH_RETURN_IF_ERROR(RunPass());
  return std::exchange(now_, std::nullopt)->loss_sum / microbatches;
}

Executor::PassUnderWay Executor::Begin(const Pass& pass,
                                       const schedule::PolicyOptions& options) const {
  PassUnderWay begun{.pass = pass, .policy = StagePolicy(options)};
  for (const auto& [key, tensor] : inputs_) {
    if (key.first == pass) begun.policy.InputReady(key.second);
  }
  return begun;
}

Executor::PassUnderWay* Executor::UnderWay(const Pass& pass) {
  for (std::optional<PassUnderWay>* one : {&now_, &next_}) {
    if (*one && (*one)->pass == pass) return &**one;
  }
  return nullptr;
}

Status Executor::RunPass() {
  gradients_let_.reset();
  LetGradientsLeave();
  const StagePolicy& policy = now_->policy;
  while (!policy.Done()) {
    LH_RETURN_IF_ERROR(HandleAll(events_->TakeAll()));
    LH_ASSIGN_OR_RETURN(const bool has_run, RunWhatCan());
    if (has_run) continue;
    LH_RETURN_IF_ERROR(
        WaitForEvent(policy.AwaitsInput() ? v1::Span::WAIT_INPUT : v1::Span::WAIT_GRADIENT));
  }
  return absl::OkStatus();
}

// The next step's forwards begin only when all of this step's have begun, in the room that these
// leave.
StatusOr<bool> Executor::RunWhatCan() {
  if (now_) {
    if (const auto work = now_->policy.Next()) {
      LH_RETURN_IF_ERROR(RunWork(&*now_, *work));
      return true;
    }
  }
  if (!next_) return false;
  const auto work = next_->policy.Next();
  if (!work) return false;
  const uint32_t before = now_ ? now_->policy.in_flight() : 0;
  if (work->task == Task::kForward && now_ &&
      (!now_->policy.AllForwardsBegun() ||
       before + next_->policy.in_flight() >= next_->policy.depth())) {
    return false;
  }
  LH_RETURN_IF_ERROR(RunWork(&*next_, *work));
  return true;
}

void Executor::LetGradientsLeave() {
  if (first() || !now_->pass.trains()) return;
  const uint32_t count = now_->policy.GradientsThatMayLeave();
  if (gradients_let_ == count) return;
  gradients_let_ = count;
  up_->LetTensorsLeave(count);
}

Status Executor::RunWork(PassUnderWay* under_way, const Work& work) {
  const Pass& pass = under_way->pass;
  const WorkAtHand::Kind kind = pass.samples()                ? WorkAtHand::Kind::kSamples
                                : !pass.trains()              ? WorkAtHand::Kind::kValidation
                                : work.task == Task::kForward ? WorkAtHand::Kind::kForward
                                                              : WorkAtHand::Kind::kBackward;
  const WorkAtHand::Scope at(work_.get(), kind, work.slice.microbatch);
  under_way->policy.Begin(work);
  peak_in_flight_ = std::max(peak_in_flight_, (now_ ? now_->policy.in_flight() : 0) +
                                                  (next_ ? next_->policy.in_flight() : 0));
  LH_RETURN_IF_ERROR(work.task == Task::kForward ? RunForward(under_way, work.slice)
                                                 : RunBackward(pass, work.slice));
  under_way->policy.End(work);
  return absl::OkStatus();
}

Status Executor::RunForward(PassUnderWay* under_way, Slice slice) {
  const Pass& pass = under_way->pass;
  Stage& model = resident_.ModelFor(pass.step);
  const ScopedSpan timer(&mark_, &times_.forward, TraceOf(pass), v1::Span::FORWARD, slice);
  Stage::Input input;
  if (options_.batches && !pass.samples()) {
    LH_ASSIGN_OR_RETURN(const Batches::Tokens tokens,
                        options_.batches->Read(pass, slice.microbatch));
    input.tokens = tokens.inputs;
    input.targets = tokens.targets;
    input.documents = tokens.documents;
    input.counted = tokens.counted;
    if (tied_ && pass.trains()) tied_->NoteTokens(tokens.inputs);
  }
  input.random = RandomOf(options_.spec, pass.step, options_.cell.replica, slice.microbatch);
  BoundaryTensor activation;
  if (!first()) {
    activation = std::move(inputs_.extract({pass, slice}).mapped());
    input.activation = activation.view;
    if (options_.batches && activation.token_ids && !pass.samples()) {
      LH_RETURN_IF_ERROR(
          CheckTokens(*activation.token_ids, TokenIds(input.tokens, options_.spec, slice)));
    }
    if (!pass.trains()) up_->SendTaken(pass, slice);
  }
  std::optional<BoundaryTensor> output;
  if (pass.samples()) {
    LH_ASSIGN_OR_RETURN(output, SampleForward(slice, input));
  } else if (!pass.trains()) {
    double loss = 0;
    LH_ASSIGN_OR_RETURN(output, model.Evaluate(slice, input, &loss));
    under_way->loss_sum += loss;
  } else {
    LH_ASSIGN_OR_RETURN(output, model.Forward(slice, input));
    if (last()) {
      LH_ASSIGN_OR_RETURN(const double loss, model.Loss(slice));
      under_way->loss_sum += loss;
    }
  }
  if (output) {
    output->token_ids = std::move(activation.token_ids);
    if (first() && !pass.samples() && down_->wants_tokens()) {
      output->token_ids = std::make_shared<const std::vector<uint32_t>>(
          TokenIds(input.tokens, options_.spec, slice));
    }
    if (pass.step != step_) KeepTablesOfStep();
    down_->SendTensor(pass, slice, std::move(*output));
  }
  return absl::OkStatus();
}

Status Executor::RunBackward(const Pass& pass, Slice slice) {
  const ScopedSpan timer(&mark_, &times_.backward, TraceOf(pass), v1::Span::BACKWARD, slice);
  BoundaryTensor gradient;
  if (!last()) gradient = std::move(gradients_.extract({pass, slice}).mapped());
  // In other stages the last gradient leaves before any work for replicas: the stage before waits
  // for it.
  if (first() && steps_together() && now_->policy.AllBackwardsBegun()) {
    LH_RETURN_IF_ERROR(options_.exchange->BeginBeside(step_));
  }
  LH_ASSIGN_OR_RETURN(auto input_gradient,
                      resident_.ModelFor(pass.step).Backward(slice, gradient.view));
  if (input_gradient) up_->SendTensor(pass, slice, std::move(*input_gradient));
  if (first() && steps_together()) {
    // Counted with the rest of the exchange: plans read how long a backward takes by itself.
    const absl::Duration beside = options_.exchange->TakeTimeBeside();
    times_.backward -= beside;
    times_.wait_gradient += beside;
  }
  return absl::OkStatus();
}

// The norm goes up as a running sum; the final norm comes down with the decisions.
StatusOr<wire::StepMessage> Executor::AgreeOnNormAndDecisions() {
  LH_RETURN_IF_ERROR(AwaitVerdict());
  wire::StepMessage message;
  MonoTime norm_came = Now();
  if (!last()) {
    while (!norm_) LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_GRADIENT));
    if (norm_->step != step_) {
      return Internal("expected the norm of step {}, got that of step {}", step_.value(),
                      norm_->step.value());
    }
    message.squared_norm = norm_->message.squared_norm;
    norm_came = norm_->at;
    norm_.reset();
  }
  {
    const ScopedSpan timer(&mark_, &times_.optimizer, trace_.get(), v1::Span::OPTIMIZER);
    const WorkAtHand::Scope at(work_.get(), WorkAtHand::Kind::kNorm);
    const double below = message.squared_norm;
    LH_ASSIGN_OR_RETURN(const SquaredNorm norm,
                        steps_together() ? options_.exchange->AddSquaredNorm(below)
                                         : resident_.ModelFor(step_).AddSquaredGradientNorm(below));
    message.squared_norm = norm.sum;
    own_squared_norm_ = norm.own;
  }
  // A loss may be infinite and its gradients finite. All stages have to skip the same steps, and
  // the norm is what all of them get.
  if (last() && options_.spec.train.on_nonfinite == OnNonfinite::kSkip &&
      !std::isfinite(loss_sum_)) {
    message.squared_norm = std::numeric_limits<double>::quiet_NaN();
  }
  const MonoTime norm_left = Now();
  if (first()) {
    LH_ASSIGN_OR_RETURN(message, options_.exchange
                                     ? AgreeWithReplicas(message)
                                     : StatusOr<wire::StepMessage>(Decide(message.squared_norm)));
    control_ = StepControlArrived{step_, message, Now()};
  } else {
    up_->SendStepMessage(wire::TensorKind::kNormUp, step_, message);
    while (!control_) LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_INPUT));
    if (control_->step != step_) {
      return Internal("expected control of step {}, got that of step {}", step_.value(),
                      control_->step.value());
    }
  }
  if (!last()) {
    down_->SendStepMessage(wire::TensorKind::kStepControl, step_, control_->message);
  }
  norm_wait_ = control_->at - norm_left;
  norm_turn_ = (norm_left - norm_came) + (Now() - control_->at);
  return control_->message;
}

wire::StepMessage Executor::Decide(double squared_norm) {
  const auto told = samples_asked_ ? samples_asked_->second : 0u;
  return {.squared_norm = squared_norm,
          .stop = std::exchange(stop_requested_, false),
          .nonfinite = !std::isfinite(squared_norm),
          .samples = static_cast<uint32_t>(sample_requests_.size()) - told};
}

}  // namespace longhaul::worker
