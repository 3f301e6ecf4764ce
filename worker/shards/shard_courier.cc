#include "worker/shards/shard_courier.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "base/log.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul::worker {
namespace {

// What the coordinator may ask for before it has heard an answer; more is a fault on its side.
constexpr size_t kMaxWaiting = 256;
constexpr absl::Duration kTransferLimit = absl::Minutes(30);
// After a coordinator that did not serve, before the next try.
constexpr absl::Duration kCopyPause = absl::Milliseconds(200);

}  // namespace

ShardCourier::ShardCourier(std::shared_ptr<Access> access, const ShardStore* shards,
                           std::function<void(v1::WorkerMessage)> send)
    : stub_(std::move(access)),
      shards_(shards),
      send_(std::move(send)),
      thread_([this] { Loop(); }) {}

ShardCourier::~ShardCourier() {
  Shutdown();
}

void ShardCourier::Shutdown() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ShardCourier::Add(v1::WorkerCommand command) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    if (waiting_.size() >= kMaxWaiting) {
      LogWarning("{} requests to look at shards wait already; one was left out", kMaxWaiting);
      return;
    }
    const v1::CheckShards& check = command.check_shards();
    const bool known = std::ranges::any_of(waiting_, [&](const v1::WorkerCommand& one) {
      return one.check_shards().check() == check.check();
    });
    if (known) return;
    // Who waits to hear what is whole does not wait for uploads.
    auto place = waiting_.end();
    if (!check.copy()) {
      place = std::ranges::find_if(
          waiting_, [](const v1::WorkerCommand& one) { return one.check_shards().copy(); });
    }
    waiting_.insert(place, std::move(command));
  }
  changed_.notify_all();
}

bool ShardCourier::Closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

void ShardCourier::Loop() {
  while (true) {
    v1::WorkerCommand command;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      command = std::move(waiting_.front());
      waiting_.pop_front();
    }
    v1::WorkerMessage answer = Answer(command);
    if (Closing()) return;
    send_(std::move(answer));
  }
}

v1::WorkerMessage ShardCourier::Answer(const v1::WorkerCommand& command) {
  const v1::CheckShards& check = command.check_shards();
  const RunId run(command.run_id());
  const Step step(check.step());
  v1::WorkerMessage message;
  message.set_run_id(command.run_id());
  message.set_epoch(command.epoch());
  message.set_stamp(command.stamp());
  v1::ShardsChecked& answer = *message.mutable_shards_checked();
  answer.set_check(check.check());
  for (const v1::CheckpointFile& wanted : check.files()) {
    if (Closing()) break;
    const ShardFile file{wanted.name(), wanted.bytes(), wanted.sha256()};
    v1::ShardState& state = *answer.add_shards();
    state.set_name(file.name);
    if (const Status status = shards_->Check(run, step, file); !status.ok()) {
      LogWarning("run {}: {} of the checkpoint of step {}: {}", run.value(), file.name,
                 step.value(), Message(status));
      state.set_problem(std::string(Message(status)));
      state.set_unreadable(!absl::IsNotFound(status) && !absl::IsDataLoss(status));
      continue;
    }
    if (!check.copy()) continue;
    const StatusOr<std::string> path = shards_->PathOf(run, step, file.name);
    const Status status = path.ok() ? SendCopy(*path, file) : path.status();
    state.set_copied(status.ok());
    if (!status.ok()) state.set_copy_error(std::string(Message(status)));
  }
  return message;
}

Status ShardCourier::SendCopy(const std::string& path, const ShardFile& file) {
  const Deadline deadline = Deadline::After(kTransferLimit);
  while (true) {
    const Status status = TrySendCopy(path, file, deadline);
    if (!absl::IsUnavailable(status) || stub_.access().alone() || deadline.Expired()) return status;
    stub_.DoesNotServe();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kCopyPause), [this] { return closing_; });
  }
}

Status ShardCourier::TrySendCopy(const std::string& path, const ShardFile& file,
                                 Deadline deadline) {
  grpc::ClientContext context;
  stub_.access().Prepare(&context);
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoNanoseconds(deadline.Remaining()));
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return absl::CancelledError("the worker is shutting down");
    call_ = &context;
  }
  v1::UploadReply reply;
  const auto stub = stub_.Get();
  const auto writer = stub->StoreShard(&context, &reply);
  // On a new connection the coordinator takes little before it has seen the token.
  writer->WaitForInitialMetadata();
  const Status sent = SendChunks(path, file, writer.get());
  if (sent.ok()) {
    writer->WritesDone();
  } else {
    context.TryCancel();
  }
  const Status status = FromGrpc(writer->Finish(), "sending it to the coordinator");
  {
    const std::lock_guard lock(mutex_);
    call_ = nullptr;
  }
  return sent.ok() ? status : sent;
}

Status ShardCourier::SendChunks(const std::string& path, const ShardFile& file,
                                grpc::ClientWriter<v1::UploadChunk>* writer) {
  std::ifstream in(path, std::ios::binary);
  v1::UploadChunk chunk;
  chunk.set_sha256(file.sha256);
  chunk.set_total_bytes(file.bytes);
  for (uint64_t left = file.bytes; left > 0;) {
    const size_t size = std::min<uint64_t>(left, kChunkBytes);
    std::string& data = *chunk.mutable_data();
    data.resize(size);
    if (!in.read(data.data(), static_cast<std::streamsize>(size))) {
      return DataLoss("cannot read {} to its end", path);
    }
    left -= size;
    // False: the coordinator has it already, or refused it; Finish says which.
    if (!writer->Write(chunk)) return absl::OkStatus();
    chunk.clear_sha256();
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
