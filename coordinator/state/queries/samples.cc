#include "coordinator/state/queries/samples.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {
namespace {

// Limits of what a worker says of one text.
constexpr size_t kMostTextBytes = 16 << 10, kMostShownPrompt = 400, kMostProblemBytes = 1000;

Status CheckWanted(const v1::TakeSamples& wanted, const RunRecord& record) {
  const uint32_t context = record.spec.model.context;
  const uint32_t vocabulary = record.data ? record.data->vocabulary : 0;
  if (wanted.prompts().empty() || wanted.prompts_size() > static_cast<int>(kMostSamplePrompts)) {
    return InvalidArgument("expected 1 to {} prompts, got {}", kMostSamplePrompts,
                           wanted.prompts_size());
  }
  if (wanted.tokens() < 1 || wanted.tokens() > kMostSampleTokens) {
    return InvalidArgument("expected 1 to {} new tokens, got {}", kMostSampleTokens,
                           wanted.tokens());
  }
  if (wanted.stop_size() > static_cast<int>(kMostSampleStops)) {
    return InvalidArgument("expected at most {} tokens that end a text, got {}", kMostSampleStops,
                           wanted.stop_size());
  }
  if (!(wanted.temperature() >= 0 && wanted.temperature() <= 100)) {
    return InvalidArgument("expected a temperature from 0 to 100, got {}", wanted.temperature());
  }
  if (!(wanted.top_p() > 0 && wanted.top_p() <= 1)) {
    return InvalidArgument("expected a top_p above 0 and at most 1, got {}", wanted.top_p());
  }
  for (const v1::TakeSamples::Prompt& prompt : wanted.prompts()) {
    const auto tokens = static_cast<uint64_t>(prompt.ids_size());
    if (tokens == 0 || tokens + wanted.tokens() > context) {
      return InvalidArgument(
          "expected a prompt of 1 to {} tokens, which with {} new tokens fill the model's context "
          "of {}, got one of {}",
          context > wanted.tokens() ? context - wanted.tokens() : 0, wanted.tokens(), context,
          tokens);
    }
    for (const uint32_t id : prompt.ids()) {
      if (id < vocabulary) continue;
      return InvalidArgument("expected token ids below the run's vocabulary of {}, got {}",
                             vocabulary, id);
    }
  }
  return absl::OkStatus();
}

// What a worker says is a stranger's word: cut and printable.
v1::SampleRound RoundOf(const v1::SampleReport& report, int64_t unix_ms, bool with_ids) {
  v1::SampleRound round;
  round.set_step(report.step());
  round.set_unix_ms(unix_ms);
  round.set_problem(Printable(report.problem(), kMostProblemBytes));
  const int count = std::min(report.samples_size(), static_cast<int>(kMostSamplePrompts));
  for (int i = 0; i < count; ++i) {
    const v1::Sample& said = report.samples(i);
    v1::Sample& sample = *round.add_samples();
    sample.set_prompt(PrintableLines(said.prompt().substr(0, kMostShownPrompt)));
    sample.set_text(PrintableLines(said.text().substr(0, kMostTextBytes)));
    const int ids = std::min(said.ids_size(), static_cast<int>(kMostSampleTokens));
    sample.mutable_ids()->Add(said.ids().begin(), said.ids().begin() + ids);
    if (with_ids) *sample.mutable_prompt_ids() = said.prompt_ids();
  }
  return round;
}

}  // namespace

void Samples::On(event::SamplesAsked& asked) {
  const Status begun = Begin(asked);
  if (!begun.ok()) ledger_.Do(command::Reply<v1::SampleReply>{asked.request, begun});
}

Status Samples::Begin(const event::SamplesAsked& asked) {
  LH_ASSIGN_OR_RETURN(const Run* const run, ledger_.RunCalled(asked.run));
  const RunRecord& record = run->record;
  if (record.spec.replay) {
    return FailedPrecondition("run {} is a replay, which computes nothing", record.id.value());
  }
  if (record.state != RunState::kRunning) {
    return FailedPrecondition("run {} is {}; only a run that trains takes samples",
                              record.id.value(), ToString(record.state));
  }
  LH_RETURN_IF_ERROR(CheckWanted(asked.wanted, record));
  const auto under_way = std::ranges::count_if(
      requests_, [&](const auto& one) { return one.second.run == record.id; });
  if (under_way >= static_cast<int64_t>(kMostSampleRequests)) {
    return ResourceExhausted("{} requests for samples of run {} wait already; try again later",
                             under_way, record.id.value());
  }
  const auto stage = std::ranges::find_if(
      run->stages, [](const StageRecord& one) { return one.is_first && one.id.replica == 0; });
  if (stage == run->stages.end()) {
    return FailedPrecondition("run {} has no first stage", record.id.value());
  }
  const Worker* const worker = ledger_.LiveWorkerOf(stage->worker, stage->incarnation);
  if (worker == nullptr) {
    return Unavailable("{} is not connected, which begins the samples of run {}",
                       ledger_.Label(*stage), record.id.value());
  }
  const uint64_t id = next_++;
  Request& request = requests_[id];
  request = {.request = asked.request,
             .run = record.id,
             .epoch = record.epoch,
             .worker = worker->id,
             .wanted = asked.wanted,
             .until = ledger_.now() + kSampleLimit};
  request.wanted.set_request(id);
  Send(*worker, request);
  return absl::OkStatus();
}

void Samples::Send(const Worker& worker, const Request& request) const {
  v1::WorkerCommand command = ledger_.CommandFor(request.run, request.epoch);
  *command.mutable_take_samples() = request.wanted;
  ledger_.Send(worker, std::move(command));
}

void Samples::Repeat(const Worker& worker) const {
  for (const auto& [id, request] : requests_) {
    if (request.worker == worker.id) Send(worker, request);
  }
}

void Samples::OnReport(Run& run, const StageRecord& stage, const v1::SampleReport& report) {
  if (!stage.is_first || stage.id.replica != 0) return;
  if (report.request() == 0) {
    const RunSpec& spec = run.record.spec;
    if (spec.samples.every == 0 || report.step() > spec.train.steps) return;  // nobody asked
    std::vector<v1::SampleRound>& kept = run.record.samples;
    // After a recovery, steps are trained again.
    std::erase_if(kept, [&](const auto& round) { return round.step() >= report.step(); });
    kept.push_back(RoundOf(report, ledger_.unix_ms(), /*with_ids=*/false));
    if (kept.size() > kKeptSampleRounds) kept.erase(kept.begin());
    ledger_.Store(run);
    if (!report.problem().empty()) {
      ledger_.Log(&run, "note", "there are no samples after step {}: {}", report.step(),
                  kept.back().problem());
    }
    return;
  }
  const auto found = requests_.find(report.request());
  if (found == requests_.end() || found->second.run != run.record.id ||
      found->second.epoch != run.record.epoch) {
    return;  // given up
  }
  v1::SampleReply reply;
  reply.set_run_id(run.record.id.value());
  *reply.mutable_round() = RoundOf(report, ledger_.unix_ms(), /*with_ids=*/true);
  if (!report.problem().empty()) {
    End(found->first, FailedPrecondition("{}", reply.round().problem()));
  } else {
    End(found->first, std::move(reply));
  }
}

void Samples::End(uint64_t id, StatusOr<v1::SampleReply> reply) {
  const auto found = requests_.find(id);
  const RequestId request = found->second.request;
  requests_.erase(found);
  ledger_.Do(command::Reply<v1::SampleReply>{request, std::move(reply)});
}

void Samples::EndAll(const RunId& run, const Status& why) {
  std::vector<uint64_t> ids;
  for (const auto& [id, request] : requests_) {
    if (request.run == run) ids.push_back(id);
  }
  for (const uint64_t id : ids) End(id, why);
}

void Samples::CheckTimers() {
  std::vector<uint64_t> late;
  for (const auto& [id, request] : requests_) {
    if (ledger_.now() >= request.until) late.push_back(id);
  }
  for (const uint64_t id : late) {
    End(id, DeadlineExceeded("run {} has taken no samples within {:g} minutes",
                             requests_.at(id).run.value(), absl::ToDoubleMinutes(kSampleLimit)));
  }
}

MonoTime Samples::NextWake() const {
  MonoTime wake = MonoTime::max();
  for (const auto& [id, request] : requests_) wake = std::min(wake, request.until);
  return wake;
}

void Samples::OnMove(Run& run, const Transition& row) {
  // A run that finishes still answers: its last step ends first.
  if (row.to == RunState::kRunning || row.to == RunState::kFinishing) return;
  EndAll(run.record.id,
         absl::AbortedError(fmt::format("run {} is {} now, and has taken no samples before",
                                        run.record.id.value(), ToString(row.to))));
}

void Samples::OnRemove(const RunId& id) {
  EndAll(id, absl::AbortedError(fmt::format("run {} is removed", id.value())));
}

}  // namespace longhaul::coordinator
