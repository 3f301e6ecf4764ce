#include "worker/audit/audit_run.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "run/plan/proto/plan_proto.h"
#include "worker/audit/recorded_transport.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kFetchRecordingLimit = absl::Minutes(30);
constexpr uint64_t kMostRecordingBytes = uint64_t{1} << 40;

// Reads checkpoints of the worker's store, and says what would be written instead of writing.
class DescribingShards final : public ShardStore {
 public:
  explicit DescribingShards(ShardStore* store) : store_(store) {}

  StatusOr<std::vector<ShardFile>> Write(const RunId& run, const ShardOwner& owner,
                                         const StageSnapshot& snapshot) override {
    return DescribeShards(run, owner, snapshot);
  }
  StatusOr<std::unique_ptr<ShardWriter>> Take(const RunId& run, Step step,
                                              const ShardFile& file) override {
    return store_->Take(run, step, file);
  }
  StatusOr<std::string> PathOf(const RunId& run, Step step,
                               const std::string& name) const override {
    return store_->PathOf(run, step, name);
  }
  Status Check(const RunId& run, Step step, const ShardFile& file) const override {
    return store_->Check(run, step, file);
  }
  StatusOr<StageSnapshot> Read(const RunId& run, Step step,
                               const std::vector<ShardFile>& files) const override {
    return store_->Read(run, step, files);
  }
  StatusOr<std::optional<Step>> Oldest(const RunId& /*run*/) const override {
    return std::nullopt;  // an audit deletes nothing
  }
  Status Drop(const RunId& /*run*/, Step /*step*/) override { return absl::OkStatus(); }
  Status DropOthers(const RunId& /*run*/, const std::set<Step>& /*kept*/) override {
    return absl::OkStatus();
  }
  Status DropRun(const RunId& /*run*/) override { return absl::OkStatus(); }

 private:
  ShardStore* const store_;
};

// What a cell receives over one edge in one step.
struct Received {
  uint64_t chunks = 0, words = 0;
  friend bool operator==(const Received&, const Received&) = default;
};

// False: not a message that training sends this cell over this edge.
bool Belongs(const wire::TensorHeader& header, const Edge& edge, const CellId& cell) {
  if (header.validation || header.sampling) return false;
  const bool upstream = edge.to == cell;  // the peer is the stage before
  switch (header.kind) {
    case wire::TensorKind::kChunk:
      return (header.direction == Direction::kForward) == upstream;
    case wire::TensorKind::kStepControl:
      return upstream;
    case wire::TensorKind::kNormUp:
      return !upstream;
    default:
      return false;
  }
}

}  // namespace

Status CheckRecording(const std::vector<RecordedMessage>& recording, const Assignment& assignment,
                      const CellId& cell, const RunSpec& spec, Step from, Step to) {
  std::map<EdgeId, const Edge*> edges;
  for (const Edge* edge : assignment.EdgesOf(cell, EdgeKind::kActivations)) edges[edge->id] = edge;
  std::map<std::pair<EdgeId, Step>, Received> received;
  for (const RecordedMessage& message : recording) {
    const wire::TensorHeader& header = message.header;
    const auto edge = edges.find(header.edge);
    if (header.step <= from || header.step > to || edge == edges.end() ||
        !Belongs(header, *edge->second, cell)) {
      return InvalidArgument(
          "the recording has a message of kind {} of step {} over edge {}, which {} does not "
          "receive in steps {} to {}",
          static_cast<int>(header.kind), header.step.value(), header.edge.value(), ToString(cell),
          from.value() + 1, to.value());
    }
    Received& so_far = received[{header.edge, header.step}];
    ++(header.kind == wire::TensorKind::kChunk ? so_far.chunks : so_far.words);
  }
  const Received whole{.chunks = uint64_t{spec.train.microbatches} * spec.pipeline.SlicesNow(),
                       .words = 1};
  for (const auto& [id, edge] : edges) {
    for (Step step = from.Next(); step <= to; step = step.Next()) {
      const Received& has = received[{id, step}];
      if (has == whole) continue;
      return InvalidArgument(
          "expected {} tensors and one message of step {} over edge {} in the recording, it has {} "
          "and {}",
          whole.chunks, step.value(), id.value(), has.chunks, has.words);
    }
  }
  return absl::OkStatus();
}

AuditRun::AuditRun(const Resources& resources, v1::WorkerCommand command)
    : resources_(resources), command_(std::move(command)) {}

AuditRun::~AuditRun() = default;

bool AuditRun::Cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_.has_value();
}

void AuditRun::Cancel(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_) cancelled_ = reason;
  if (run_ != nullptr) run_->Cancel(reason);
}

v1::WorkerMessage AuditRun::Run() {
  v1::WorkerMessage message;
  message.set_run_id(command_.run_id());
  message.set_epoch(command_.epoch());
  message.set_stamp(command_.stamp());
  v1::AuditReport& report = *message.mutable_audited();
  const Status status = Compute(&report);
  report.set_audit(number());
  if (status.ok()) {
    LogInfo("run {}: {} is computed again, up to step {}", command_.run_id(),
            ToString(FromProto(command_.audit().assign().cell())), command_.audit().end_step());
    return message;
  }
  report.clear_steps();
  report.clear_files();
  report.set_problem(std::string(Message(status)));
  report.set_recording_faulty(recording_faulty_);
  LogWarning("run {}: an audit ends without a result: {}", command_.run_id(), Message(status));
  return message;
}

StatusOr<std::string> AuditRun::FetchRecording() const {
  const v1::Audit& audit = command_.audit();
  const RunId run(command_.run_id());
  const Step step(audit.end_step());
  const ShardFile file{audit.recording().name(), audit.recording().bytes(),
                       audit.recording().sha256()};
  if (resources_.shards->Check(run, step, file).ok()) {
    return resources_.shards->PathOf(run, step, file.name);
  }
  return resources_.shard_copies->Fetch(file.sha256, Deadline::After(kFetchRecordingLimit),
                                        [this] { return Cancelled(); });
}

Status AuditRun::Compute(v1::AuditReport* report) {
  const v1::Audit& audit = command_.audit();
  const Assignment assignment = FromProto(audit.assign().assignment());
  const CellId cell = FromProto(audit.assign().cell());
  LH_RETURN_IF_ERROR(CheckAssignment(assignment));
  if (assignment.Find(cell) == nullptr || audit.end_step() <= assignment.start_step) {
    return InvalidArgument("expected an assignment with {} and steps after {}, got steps up to {}",
                           ToString(cell), assignment.start_step, audit.end_step());
  }
  LH_ASSIGN_OR_RETURN(const RunSpec spec, ParseRunSpec(assignment.run_yaml, "run.yaml", {}));
  const Step from(assignment.start_step), to(audit.end_step());
  LH_ASSIGN_OR_RETURN(const std::string path, FetchRecording());
  LH_ASSIGN_OR_RETURN(const std::string file, ReadFile(path, kMostRecordingBytes));
  const StatusOr<std::vector<RecordedMessage>> recording =
      ReadRecording(std::as_bytes(std::span(file)));
  recording_faulty_ = true;
  LH_RETURN_IF_ERROR(recording.status());
  LH_RETURN_IF_ERROR(CheckRecording(*recording, assignment, cell, spec, from, to));
  recording_faulty_ = false;

  RecordedTransport recorded(*recording, assignment.epoch, assignment.stamp());
  DescribingShards shards(resources_.shards);
  std::mutex mutex;
  Status failed;
  bool began = false;
  std::unique_ptr<EpochRun> run;
  Resources mine = resources_;
  mine.transports.clear();
  for (const Edge& edge : assignment.edges) mine.transports[edge.transport] = &recorded;
  mine.shards = &shards;
  mine.traffic = nullptr;
  mine.dump.reset();
  mine.restart = nullptr;
  // What comes is to be computed from as it is, by a worker that does not lie.
  mine.kept_messages = nullptr;
  mine.senders = nullptr;
  mine.sign = nullptr;
  mine.rehearsal = nullptr;
  mine.send = [&](v1::WorkerMessage said) {
    const std::lock_guard lock(mutex);
    switch (said.body_case()) {
      case v1::WorkerMessage::kStageReady:
        began = true;
        recorded.Play();
        run->Start();
        return;
      case v1::WorkerMessage::kStep:
        *report->add_steps() = std::move(*said.mutable_step());
        return;
      case v1::WorkerMessage::kShard:
        *report->mutable_files() = std::move(*said.mutable_shard()->mutable_files());
        if (!said.shard().problem().empty()) failed = Internal("{}", said.shard().problem());
        return;
      case v1::WorkerMessage::kFinished:
        // It would wait for neighbours that may still need it.
        run->Cancel("the audit is done");
        return;
      case v1::WorkerMessage::kError:
        failed = Status(static_cast<absl::StatusCode>(said.error().code()), said.error().message());
        return;
      default:
        return;
    }
  };
  run = std::make_unique<EpochRun>(mine, audit.assign(), nullptr, to);
  {
    const std::lock_guard lock(mutex_);
    run_ = run.get();
    if (cancelled_) run_->Cancel(*cancelled_);
  }
  run->Run();
  {
    const std::lock_guard lock(mutex_);
    run_ = nullptr;
    if (cancelled_) return absl::CancelledError(*cancelled_);
  }
  run.reset();
  const std::lock_guard lock(mutex);
  // The cell could compute from what it had received, so what it gave is something else.
  recording_faulty_ = began && (absl::IsInvalidArgument(failed) || absl::IsDataLoss(failed));
  LH_RETURN_IF_ERROR(failed);
  if (report->steps_size() != static_cast<int>(to.value() - from.value()) ||
      report->files().empty()) {
    return Internal("expected reports of {} steps and the files of a state, got {} and {}",
                    to.value() - from.value(), report->steps_size(), report->files_size());
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
