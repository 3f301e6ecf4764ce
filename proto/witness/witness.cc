#include "proto/witness/witness.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/watchdog.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/rpc/status.h"
#include "proto/witness/wire.h"

namespace longhaul::witness {
namespace {

constexpr absl::Duration kJoinLimit = absl::Seconds(5);
constexpr absl::Duration kDialAgain = absl::Milliseconds(300);
constexpr absl::Duration kRenewPause = absl::Minutes(1);
// How often a new Record::seen alone is stored.
constexpr absl::Duration kStoreSeen = absl::Seconds(10);
constexpr uint64_t kMostRecordBytes = 64 << 10;

std::string RecordPath(const std::string& state_dir) {
  return state_dir + "/witness.json";
}

StatusOr<Record> ReadRecord(const std::string& path) {
  const StatusOr<std::string> text = ReadFile(path, kMostRecordBytes);
  if (absl::IsNotFound(text.status())) return Record{.id = RandomUuid()};
  LH_RETURN_IF_ERROR(text.status());
  StatusOr<Record> record = ParseRecord(*text);
  if (record.ok()) return record;
  return DataLoss(
      "{} is damaged ({}); a witness is replaced, never put back from a copy: begin one with an "
      "empty state directory",
      path, Message(record.status()));
}

}  // namespace

struct Witness::Line {
  std::string address;
  std::shared_ptr<Access> access;
  grpc::ClientContext* context = nullptr;  // of the open stream; guarded by Witness::mutex_
  std::string last_trouble;                // used by the thread
  std::thread thread;
};

Witness::Witness(Options options, Record record)
    : options_(std::move(options)), record_(std::move(record)), heard_(Now()) {}

StatusOr<std::unique_ptr<Witness>> Witness::Start(const Options& options) {
  LH_RETURN_IF_ERROR(MakeDirectories(options.state_dir));
  LH_ASSIGN_OR_RETURN(Record record, ReadRecord(RecordPath(options.state_dir)));
  AccessOptions member{.addresses = options.coordinators,
                       .token_file = options.token_file,
                       .credentials_file = options.state_dir + "/witness.pem",
                       .role = Role::kWitness,
                       .name = options.name};
  LH_RETURN_IF_ERROR(Access::Open(member, kJoinLimit).status());
  std::unique_ptr<Witness> witness(new Witness(options, std::move(record)));
  // The id counts from the first hello on.
  LH_RETURN_IF_ERROR(witness->Store(witness->record_));
  for (const std::string& address : options.coordinators) {
    auto line = std::make_unique<Line>();
    line->address = address;
    // It has joined, so nothing is asked here.
    member.addresses = {address};
    LH_ASSIGN_OR_RETURN(line->access, Access::Open(member, kJoinLimit));
    witness->lines_.push_back(std::move(line));
  }
  for (const auto& line : witness->lines_) {
    line->thread = std::thread([raw = witness.get(), one = line.get()] { raw->Loop(one); });
  }
  return witness;
}

Witness::~Witness() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const auto& line : lines_) {
      if (line->context != nullptr) line->context->TryCancel();
    }
  }
  changed_.notify_all();
  for (const auto& line : lines_) {
    if (line->thread.joinable()) line->thread.join();
  }
}

Record Witness::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

Status Witness::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status Witness::Store(const Record& record) {
  LH_RETURN_IF_ERROR(Annotate(WriteFileAtomic(RecordPath(options_.state_dir), ToJson(record), 0600),
                              "state directory"));
  stored_seen_ = record.seen;
  stored_at_ = Now();
  return absl::OkStatus();
}

void Witness::Loop(Line* line) {
  WatchedLoop watched("witness");
  while (true) {
    watched.Turned();
    const Status renewed = AwaitOthers([&] { return line->access->RenewIfDue(kRenewPause); });
    if (!renewed.ok()) {
      LogDebug("{}: {}", line->address, Message(renewed));
    }
    const Status end = Follow(line);
    std::unique_lock lock(mutex_);
    if (closing_) return;
    const std::string trouble = end.ok() ? "it closed the stream" : std::string(Message(end));
    if (std::exchange(line->last_trouble, trouble) != trouble) {
      LogWarning("the coordinator {}: {}; dialling again", line->address, trouble);
    }
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kDialAgain), [this] { return closing_; });
    if (closing_) return;
  }
}

Status Witness::Follow(Line* line) {
  grpc::ClientContext context;
  v1::WitnessSays hello;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return absl::CancelledError("the witness ends");
    line->context = &context;
    hello.mutable_hello()->set_name(options_.name);
    hello.mutable_hello()->set_version(options_.version);
    *hello.mutable_hello()->mutable_record() = ToProto(record_);
  }
  // A new connection each time: a coordinator that takes over listens anew at its address.
  const auto stub = v1::WitnessService::NewStub(line->access->Dial().channel);
  line->access->Prepare(&context, /*wait=*/false);
  const auto stream = AwaitOthers([&] { return stub->Witness(&context); });
  bool heard = false;
  if (AwaitOthers([&] { return stream->Write(hello); })) {
    v1::WitnessAsked asked;
    while (AwaitOthers([&] { return stream->Read(&asked); })) {
      if (!std::exchange(heard, true)) {
        LogInfo("the coordinator {} is there", line->address);
        line->last_trouble.clear();
        line->access->NoteAuthority(context);
      }
      const v1::WitnessSays answer = Answer(asked);
      if (!answer.has_answer() || !AwaitOthers([&] { return stream->Write(answer); })) break;
    }
  }
  context.TryCancel();
  const Status end = FromGrpc(AwaitOthers([&] { return stream->Finish(); }));
  const std::lock_guard lock(mutex_);
  line->context = nullptr;
  return heard && absl::IsCancelled(end) ? absl::OkStatus() : end;
}

// Without an answer in it: the record could not be stored.
v1::WitnessSays Witness::Answer(const v1::WitnessAsked& asked) {
  v1::WitnessSays says;
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return says;
  Record record = record_;
  const StatusOr<Request> request = FromProto(asked);
  Decision decision;
  if (request.ok()) {
    decision = Decide(*request, Now() - heard_ < options_.lease, &record);
  } else {
    decision.why = std::string(Message(request.status()));
  }
  const bool seen_alone = [&] {
    Record before = record_;
    before.seen = record.seen;
    return before == record;
  }();
  const bool must_store = seen_alone
                              ? record.seen != stored_seen_ && Now() - stored_at_ >= kStoreSeen
                              : !(record == record_);
  if (must_store) {
    if (const Status stored = Store(record); !stored.ok()) {
      LogError("{}", Message(stored));
      failure_ = stored;
      return says;
    }
    if (!seen_alone) {
      LogInfo("term {}: the coordinator {} leads, and {} in sync", record.term, record.seat,
              record.in_sync.size() > 1 ? "both are" : "it alone is");
    }
  }
  record_ = std::move(record);
  if (decision.granted) heard_ = Now();
  v1::WitnessSays::Answer& answer = *says.mutable_answer();
  answer.set_request(asked.request());
  answer.set_granted(decision.granted);
  answer.set_why(decision.why);
  *answer.mutable_record() = ToProto(record_);
  return says;
}

}  // namespace longhaul::witness
