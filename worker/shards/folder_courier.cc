#include "worker/shards/folder_courier.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::worker {
namespace {

constexpr size_t kThreads = 2;
// What the coordinator may ask for before it has heard an answer; more is a fault on its side.
constexpr size_t kMostJobs = 256;
// The coordinator's limit is longer. A transfer on which no byte moves ends much earlier.
constexpr absl::Duration kLimit = absl::Hours(22);

uint64_t CheckOf(const v1::WorkerCommand& command) {
  return command.has_take_shards() ? command.take_shards().check() : command.check_shards().check();
}

ShardFile ShardOf(const v1::CheckpointFile& file) {
  ShardFile shard{file.name(), file.bytes(), file.sha256()};
  shard.run = file.run_id();
  return shard;
}

// The size of a piece comes over the wire.
Status CheckFolder(const v1::StoredFolder& folder) {
  if (folder.piece_bytes() > 0 && folder.address().ends_with('/')) return absl::OkStatus();
  return InvalidArgument("expected a folder with pieces of at least one byte, got {} and {}",
                         folder.address(), folder.piece_bytes());
}

}  // namespace

struct FolderCourier::Job {
  v1::WorkerCommand command;
  std::atomic<bool> given_up{false};
};

FolderCourier::FolderCourier(Objects* objects, ShardStore* shards,
                             std::function<void(v1::WorkerMessage)> send)
    : objects_(objects), shards_(shards), send_(std::move(send)) {
  for (size_t i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Loop(); });
}

FolderCourier::~FolderCourier() {
  Shutdown();
}

void FolderCourier::Shutdown() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    waiting_.clear();
    for (const auto& job : under_way_) job->given_up = true;
    threads = std::move(threads_);
    threads_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void FolderCourier::Handle(v1::WorkerCommand command) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  const auto is_same = [&](const std::shared_ptr<Job>& job) {
    return CheckOf(job->command) == CheckOf(command);
  };
  if (std::ranges::any_of(waiting_, is_same) || std::ranges::any_of(under_way_, is_same)) return;
  if (waiting_.size() >= kMostJobs) {
    LogWarning("{} copies to or from object stores wait already; one was left out", kMostJobs);
    return;
  }
  auto job = std::make_shared<Job>();
  job->command = std::move(command);
  // A run waits for what is fetched, and nobody for copies.
  if (job->command.has_take_shards()) {
    waiting_.push_front(std::move(job));
  } else {
    waiting_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void FolderCourier::EpochBegins(const RunId& run, Epoch epoch) {
  const std::lock_guard lock(mutex_);
  const auto is_older = [&](const std::shared_ptr<Job>& job) {
    return job->command.has_take_shards() && job->command.run_id() == run.value() &&
           job->command.epoch() < epoch.value();
  };
  for (const auto& job : under_way_) {
    if (is_older(job)) job->given_up = true;
  }
  std::erase_if(waiting_, is_older);
}

void FolderCourier::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (closing_) return;
    const std::shared_ptr<Job> job = std::move(waiting_.front());
    waiting_.pop_front();
    under_way_.push_back(job);
    lock.unlock();
    Answer(job->command, [&job] { return job->given_up.load(); });
    lock.lock();
    std::erase(under_way_, job);
  }
}

void FolderCourier::Answer(const v1::WorkerCommand& command, const Objects::GivenUp& given_up) {
  v1::WorkerMessage message;
  message.set_run_id(command.run_id());
  message.set_epoch(command.epoch());
  message.set_stamp(command.stamp());
  v1::ShardsChecked& answer = *message.mutable_shards_checked();
  answer.set_check(CheckOf(command));
  if (command.has_take_shards()) {
    Fetch(command, given_up, &answer);
  } else {
    Write(command, given_up, &answer);
  }
  if (!given_up()) send_(std::move(message));
}

void FolderCourier::Write(const v1::WorkerCommand& command, const Objects::GivenUp& given_up,
                          v1::ShardsChecked* answer) {
  const v1::CheckShards& check = command.check_shards();
  const v1::StoredFolder& folder = check.to_folder();
  const RunId run(command.run_id());
  const Step step(check.step());
  const Deadline deadline = Deadline::After(kLimit);
  const MonoTime began = Now();
  uint64_t sent = 0;
  for (const v1::CheckpointFile& file : check.files()) {
    if (given_up()) return;
    v1::ShardState& state = *answer->add_shards();
    state.set_name(file.name());
    if (const Status status = shards_->Check(run, step, ShardOf(file)); !status.ok()) {
      state.set_problem(std::string(Message(status)));
      state.set_unreadable(!absl::IsNotFound(status) && !absl::IsDataLoss(status));
      continue;
    }
    const Status status = [&]() -> Status {
      LH_RETURN_IF_ERROR(CheckFolder(folder));
      LH_ASSIGN_OR_RETURN(const std::string path, shards_->PathOf(run, step, file.name()));
      LH_ASSIGN_OR_RETURN(const MappedFile contents, MappedFile::Open(path));
      if (contents.bytes().size() != file.bytes()) {
        return DataLoss("expected {} bytes, {} has {}", file.bytes(), path,
                        contents.bytes().size());
      }
      for (const stored::Piece& piece : stored::PiecesOf(file, folder.piece_bytes())) {
        LH_RETURN_IF_ERROR(objects_->Write(command.run_id(), folder.address() + piece.name,
                                           contents.bytes().subspan(piece.offset, piece.bytes),
                                           deadline, given_up));
        sent += piece.bytes;
      }
      return absl::OkStatus();
    }();
    state.set_copied(status.ok());
    if (status.ok()) continue;
    state.set_copy_error(std::string(Message(status)));
    LogWarning("run {}: {} of the checkpoint of step {} did not go to {}: {}", command.run_id(),
               file.name(), step.value(), folder.address(), Message(status));
  }
  if (sent == 0) return;
  LogInfo("run {}: {} of the checkpoint of step {} went to {} in {}", command.run_id(),
          FormatBytes(static_cast<double>(sent)), step.value(), folder.address(),
          longhaul::FormatDuration(Now() - began));
}

void FolderCourier::Fetch(const v1::WorkerCommand& command, const Objects::GivenUp& given_up,
                          v1::ShardsChecked* answer) {
  const v1::TakeShards& take = command.take_shards();
  const v1::StoredFolder& folder = take.from_folder();
  const RunId run(command.run_id());
  const Step step(take.step());
  const Deadline deadline = Deadline::After(kLimit);
  for (const v1::CheckpointFile& file : take.files()) {
    if (given_up()) return;
    v1::ShardState& state = *answer->add_shards();
    state.set_name(file.name());
    const ShardFile shard = ShardOf(file);
    if (shards_->Check(run, step, shard).ok()) {  // the coordinator has missed the answer
      state.set_copied(true);
      continue;
    }
    const Status status = [&]() -> Status {
      LH_RETURN_IF_ERROR(CheckFolder(folder));
      LH_ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer,
                          shards_->Take(run, step, shard));
      for (const stored::Piece& piece : stored::PiecesOf(file, folder.piece_bytes())) {
        LH_RETURN_IF_ERROR(objects_->Read(
            command.run_id(), folder.address() + piece.name, piece.bytes,
            [&](std::span<const std::byte> bytes) { return writer->Append(bytes); }, deadline,
            given_up));
      }
      return writer->Commit();
    }();
    state.set_copied(status.ok());
    if (status.ok()) continue;
    if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
      state.set_problem(std::string(Message(status)));
    } else {
      state.set_copy_error(std::string(Message(status)));
    }
    LogWarning("run {}: {} of the checkpoint of step {} did not come from {}: {}", command.run_id(),
               file.name(), step.value(), folder.address(), Message(status));
  }
}

}  // namespace longhaul::worker
