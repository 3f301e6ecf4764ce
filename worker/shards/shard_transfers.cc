#include "worker/shards/shard_transfers.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "proto/wire/transfer_word.h"
#include "worker/checkpoint/shard_coding.h"
#include "worker/shards/line_pace.h"

namespace longhaul::worker {
namespace {

using transport::Lane;
using transport::Link;

constexpr size_t kMostTransfers = 64;
constexpr absl::Duration kTransferOpenLimit = absl::Seconds(20);
constexpr absl::Duration kTransferCloseLimit = absl::Seconds(5);
constexpr absl::Duration kLongestTransfer = absl::Hours(24);

// Bytes in flight: a few pieces of a paced transfer, else enough for a long fast line.
constexpr uint64_t kPacedWindowPieces = 16;
constexpr uint64_t kWindowBytes = uint64_t{8} << 20;

LinePace PaceOf(const v1::ShardPath& path) {
  return {.bits_per_second = path.line_bits_per_second(), .share = wire::kLeastCopyShare};
}

size_t PieceBytes(const v1::ShardPath& path) {
  return path.paced() ? PaceOf(path).PieceBytes() : transport::kMaxFramePayloadBytes;
}

uint64_t WindowBytes(const v1::ShardPath& path) {
  return path.paced() ? kPacedWindowPieces * PieceBytes(path) : kWindowBytes;
}

Deadline DeadlineOf(const v1::ShardPath& path) {
  return Deadline::After(
      std::clamp(absl::Seconds(path.limit_seconds()), absl::Seconds(1), kLongestTransfer));
}

struct Closed {
  Status reason;
};
struct Opened {
  std::shared_ptr<Link> link;
};
using Piece = std::vector<std::byte>;
using Heard = std::variant<Opened, Piece, wire::TransferWord, Closed>;

}  // namespace

// What the link's loop hears, for the transfer's thread.
class ShardTransfers::Conversation : public transport::LinkHandler {
 public:
  void OnOpened(StatusOr<std::shared_ptr<Link>> link) {
    if (!link.ok()) {
      Push(Closed{link.status()});
      return;
    }
    bool over = false;
    {
      // A link that opens after End must not stay open.
      const std::lock_guard lock(mutex_);
      over = over_;
      if (!over) link_ = *link;
    }
    if (over) {
      (*link)->Close(Deadline::After(absl::ZeroDuration()));
    } else {
      Push(Opened{*std::move(link)});
    }
  }
  void OnFrame(Lane lane, std::span<const std::byte> payload) override {
    if (lane == Lane::kControl) {
      Push(wire::DecodeTransferWord(payload));
    } else {
      Push(Piece(payload.begin(), payload.end()));
    }
  }
  void OnClosed(const Status& reason) override { Push(Closed{reason}); }

  // What was heard next; kDeadlineExceeded, or the reason given to GiveUp.
  StatusOr<Heard> Next(Deadline deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time().ToChrono(),
                        [this] { return given_up_.has_value() || !heard_.empty(); });
    if (given_up_.has_value()) return *given_up_;
    if (heard_.empty()) return absl::DeadlineExceededError("it was not done in time");
    Heard next = std::move(heard_.front());
    heard_.pop_front();
    if (const auto* piece = std::get_if<Piece>(&next)) waiting_bytes_ -= piece->size();
    return next;
  }
  bool HeardNothing() {
    const std::lock_guard lock(mutex_);
    return heard_.empty() && !given_up_.has_value();
  }
  // Maximum number of bytes that may wait for the thread. A peer that sends more breaks the
  // protocol.
  void SetMostWaiting(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    most_waiting_ = bytes;
  }
  Status Say(Lane lane, std::string bytes) {
    std::shared_ptr<Link> link;
    {
      const std::lock_guard lock(mutex_);
      link = link_;
    }
    if (!link) return absl::UnavailableError("the link is closed");
    const auto owned = std::make_shared<const std::string>(std::move(bytes));
    link->Send(lane, {.header = {}, .body = std::as_bytes(std::span(*owned))},
               [owned](const Status&) {});
    return absl::OkStatus();
  }
  void GiveUp(Status reason) {
    const std::lock_guard lock(mutex_);
    given_up_ = std::move(reason);
    changed_.notify_all();
  }
  // Ends the link, even if it opens only later.
  void End(absl::Duration limit) {
    std::shared_ptr<Link> link;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      link = std::move(link_);
      heard_.clear();
      waiting_bytes_ = 0;
    }
    if (link) link->Close(Deadline::After(limit));
  }

 private:
  void Push(Heard heard) {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    if (const auto* piece = std::get_if<Piece>(&heard)) {
      waiting_bytes_ += piece->size();
      if (waiting_bytes_ > most_waiting_) {
        heard_.clear();
        waiting_bytes_ = 0;
        heard = Closed{absl::InvalidArgumentError("it sent more than it was allowed to")};
      }
    }
    heard_.push_back(std::move(heard));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Heard> heard_;
  uint64_t waiting_bytes_ = 0, most_waiting_ = 0;
  std::shared_ptr<Link> link_;
  bool over_ = false;
  std::optional<Status> given_up_;
};

struct ShardTransfers::Transfer {
  std::string run;
  uint64_t epoch = 0;
  std::shared_ptr<Conversation> conversation = std::make_shared<Conversation>();
  std::atomic<bool> done{false};
  std::thread thread;
};

ShardTransfers::ShardTransfers(transport::TransportsByName transports, ShardStore* shards,
                               TrafficWatch* traffic, std::function<void(v1::WorkerMessage)> send)
    : transports_(std::move(transports)),
      shards_(shards),
      traffic_(traffic),
      send_(std::move(send)) {}

ShardTransfers::~ShardTransfers() {
  Shutdown();
}

void ShardTransfers::Shutdown() {
  decltype(transfers_) ending;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    ending = std::move(transfers_);
    transfers_.clear();
  }
  for (auto& [key, transfer] : ending) {
    transfer->conversation->GiveUp(absl::CancelledError("the worker is shutting down"));
  }
  for (auto& [key, transfer] : ending) transfer->thread.join();
}

void ShardTransfers::Handle(v1::WorkerCommand command) {
  const bool takes = command.has_take_shards();
  const std::pair key(takes ? command.take_shards().check() : command.check_shards().check(),
                      takes);
  const std::lock_guard lock(mutex_);
  // Joins threads that are done, since nobody else does.
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    if (it->second->done) {
      it->second->thread.join();
      it = transfers_.erase(it);
    } else {
      ++it;
    }
  }
  if (closing_ || transfers_.contains(key)) return;
  if (transfers_.size() >= kMostTransfers) {
    LogWarning("{} transfers of shards are under way already; one was left out", kMostTransfers);
    return;
  }
  // Older epochs' transfers end first, as they may write the same files.
  GiveUpBefore(command.run_id(), command.epoch());
  Transfer& transfer = *(transfers_[key] = std::make_unique<Transfer>());
  transfer.run = command.run_id();
  transfer.epoch = command.epoch();
  transfer.thread = std::thread([this, command = std::move(command), &transfer] {
    Run(command, transfer.conversation);
    transfer.done = true;
  });
}

void ShardTransfers::EpochBegins(const RunId& run, Epoch epoch) {
  const std::lock_guard lock(mutex_);
  GiveUpBefore(run.value(), epoch.value());
}

void ShardTransfers::GiveUpBefore(const std::string& run, uint64_t epoch) {
  for (auto& [key, transfer] : transfers_) {
    if (transfer->run != run || transfer->epoch >= epoch) continue;
    transfer->conversation->GiveUp(absl::AbortedError("a newer epoch of the run has begun"));
  }
}

void ShardTransfers::Run(const v1::WorkerCommand& command,
                         const std::shared_ptr<Conversation>& conversation) {
  if (command.has_take_shards()) {
    Take(command, conversation);
  } else {
    Send(command, conversation);
  }
}

void ShardTransfers::Open(const v1::WorkerCommand& command, uint64_t check,
                          const v1::ShardPath& path,
                          const std::shared_ptr<Conversation>& conversation) {
  const auto transport = transports_.find(path.transport());
  if (transport == transports_.end()) {
    conversation->OnOpened(
        FailedPrecondition("this worker does not listen on {}", path.transport()));
    return;
  }
  // A key of its own, so that it cannot meet a link of the run.
  const transport::LinkKey key{RunId(fmt::format("shards {}:{}", check, command.run_id())),
                               Stamp(command.stamp()), EdgeId(0)};
  const Deadline deadline =
      Deadline::After(std::min(DeadlineOf(path).Remaining(), kTransferOpenLimit));
  const auto opened = [conversation](StatusOr<std::shared_ptr<Link>> link) {
    conversation->OnOpened(std::move(link));
  };
  const std::vector<std::string> addresses(path.addresses().begin(), path.addresses().end());
  std::vector<std::string> peer_at(path.dialler_addresses().begin(),
                                   path.dialler_addresses().end());
  if (peer_at.empty()) peer_at = addresses;  // of a relay
  const transport::LinkOptions options{.sealed = path.sealed(), .peer_at = std::move(peer_at)};
  transport->second->Open(path.dial(), addresses, key, path.link_secret(), conversation, options,
                          deadline, opened);
}

// ---- The source --------------------------------------------------------------------

void ShardTransfers::Send(const v1::WorkerCommand& command,
                          const std::shared_ptr<Conversation>& conversation) {
  const v1::CheckShards& check = command.check_shards();
  const MonoTime began = Now();
  uint64_t sent_bytes = 0;  // coded
  const Status sent = SendFiles(command, conversation, &sent_bytes);
  conversation->End(kTransferCloseLimit);
  v1::WorkerMessage message;
  message.set_run_id(command.run_id());
  message.set_epoch(command.epoch());
  message.set_stamp(command.stamp());
  v1::ShardsChecked& answer = *message.mutable_shards_checked();
  answer.set_check(check.check());
  uint64_t bytes = 0;
  for (const v1::CheckpointFile& file : check.files()) {
    v1::ShardState& state = *answer.add_shards();
    state.set_name(file.name());
    state.set_copied(sent.ok());
    bytes += file.bytes();
    if (sent.ok()) continue;
    state.set_copy_error(std::string(Message(sent)));
    // The receiver, or this disk, found a fault in what lies here.
    if (!absl::IsDataLoss(sent)) continue;
    const Status whole = shards_->Check(RunId(command.run_id()), Step(check.step()),
                                        {file.name(), file.bytes(), file.sha256()});
    if (!whole.ok()) state.set_problem(std::string(Message(whole)));
  }
  if (sent.ok()) {
    LogInfo("run {}: {} of the checkpoint of step {} went to {} as {} in {}", command.run_id(),
            FormatBytes(static_cast<double>(bytes)), check.step(), check.to().peer_name(),
            FormatBytes(static_cast<double>(sent_bytes)), longhaul::FormatDuration(Now() - began));
  } else {
    LogWarning("run {}: the checkpoint of step {} did not go to {}: {}", command.run_id(),
               check.step(), check.to().peer_name(), Message(sent));
  }
  // A worker that shuts down answers nobody. A transfer that a newer epoch ended is answered, or
  // the coordinator would wait until its limit.
  if (!absl::IsCancelled(sent)) send_(std::move(message));
}

namespace {

// The reason why the receiver takes no more; OK: it has said how far to go.
Status WhyNot(const Heard& heard) {
  if (const auto* closed = std::get_if<Closed>(&heard)) return closed->reason;
  const auto* word = std::get_if<wire::TransferWord>(&heard);
  if (word != nullptr && !word->refusal.empty()) {
    return DataLoss("the other worker says: {}", word->refusal);
  }
  return absl::OkStatus();
}

}  // namespace

Status ShardTransfers::SendFiles(const v1::WorkerCommand& command,
                                 const std::shared_ptr<Conversation>& conversation,
                                 uint64_t* sent) {
  const v1::CheckShards& check = command.check_shards();
  const v1::ShardPath& path = check.to();
  const Deadline deadline = DeadlineOf(path);
  Open(command, check.check(), path, conversation);
  const size_t piece_bytes = PieceBytes(path);
  uint64_t may_go_to = 0;
  MonoTime last;  // when a piece was last sent
  const auto send_piece = [&](std::string piece) -> Status {
    while (*sent + piece.size() > may_go_to || !conversation->HeardNothing()) {
      LH_ASSIGN_OR_RETURN(const Heard heard, conversation->Next(deadline));
      LH_RETURN_IF_ERROR(WhyNot(heard));
      if (const auto* word = std::get_if<wire::TransferWord>(&heard)) {
        may_go_to = std::max(may_go_to, word->may_go_to);
      }
    }
    if (path.paced()) {
      // No faster than the line: bytes that it has not taken yet would stand in front of tensors.
      absl::SleepFor(PaceOf(path).LineTime(piece.size()) - (Now() - last));
      traffic_->AwaitQuiet(Now() + PaceOf(path).PatienceFor(piece.size()));
      last = Now();
    }
    *sent += piece.size();
    return conversation->Say(Lane::kBulk, std::move(piece));
  };
  std::vector<char> raw(kShardBlockBytes);
  for (const v1::CheckpointFile& file : check.files()) {
    LH_ASSIGN_OR_RETURN(const std::string name,
                        shards_->PathOf(RunId(command.run_id()), Step(check.step()), file.name()));
    std::ifstream in(name, std::ios::binary);
    for (uint64_t left = file.bytes(); left > 0;) {
      const size_t size = std::min<uint64_t>(left, raw.size());
      if (!in.read(raw.data(), static_cast<std::streamsize>(size))) {
        return DataLoss("cannot read {} to its end", name);
      }
      left -= size;
      const std::string block = EncodeShardBlock(std::as_bytes(std::span(raw).first(size)));
      for (size_t at = 0; at < block.size(); at += piece_bytes) {
        LH_RETURN_IF_ERROR(send_piece(block.substr(at, piece_bytes)));
      }
    }
  }
  while (true) {
    LH_ASSIGN_OR_RETURN(const Heard heard, conversation->Next(deadline));
    LH_RETURN_IF_ERROR(WhyNot(heard));
    const auto* word = std::get_if<wire::TransferWord>(&heard);
    if (word != nullptr && word->kept) return absl::OkStatus();
  }
}

// ---- The holder --------------------------------------------------------------------

void ShardTransfers::Take(const v1::WorkerCommand& command,
                          const std::shared_ptr<Conversation>& conversation) {
  const v1::TakeShards& take = command.take_shards();
  const Status taken = TakeFiles(command, conversation);
  wire::TransferWord word;
  if (taken.ok()) {
    word.kept = true;
  } else {
    word.refusal = std::string(Message(taken));
    LogWarning("run {}: the checkpoint of step {} was not taken from {}: {}", command.run_id(),
               take.step(), take.from().peer_name(), Message(taken));
  }
  (void)conversation->Say(Lane::kControl, wire::EncodeTransferWord(word));
  conversation->End(kTransferCloseLimit);
}

Status ShardTransfers::TakeFiles(const v1::WorkerCommand& command,
                                 const std::shared_ptr<Conversation>& conversation) {
  const v1::TakeShards& take = command.take_shards();
  const v1::ShardPath& path = take.from();
  const Deadline deadline = DeadlineOf(path);
  const uint64_t window = WindowBytes(path);
  conversation->SetMostWaiting(2 * window);
  Open(command, take.check(), path, conversation);
  uint64_t received = 0, may_go_to = 0;  // coded
  bool open = false;
  ShardDecoder decoder;
  std::vector<std::byte> raw;
  for (const v1::CheckpointFile& file : take.files()) {
    LH_ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer,
                        shards_->Take(RunId(command.run_id()), Step(take.step()),
                                      {file.name(), file.bytes(), file.sha256()}));
    for (uint64_t left = file.bytes(); left > 0;) {
      // Granted half a window early, so that the line does not run dry.
      if (open && may_go_to < received + window / 2) {
        if (path.paced()) traffic_->AwaitQuiet(Now() + PaceOf(path).PatienceFor(window));
        may_go_to = received + window;
        LH_RETURN_IF_ERROR(conversation->Say(
            Lane::kControl, wire::EncodeTransferWord({.may_go_to = may_go_to, .refusal = {}})));
      }
      LH_ASSIGN_OR_RETURN(const Heard heard, conversation->Next(deadline));
      LH_RETURN_IF_ERROR(WhyNot(heard));
      if (std::holds_alternative<Opened>(heard)) open = true;
      const auto* piece = std::get_if<Piece>(&heard);
      if (piece == nullptr) continue;
      received += piece->size();
      raw.clear();
      LH_RETURN_IF_ERROR(decoder.Take(*piece, &raw));
      LH_RETURN_IF_ERROR(writer->Append(raw));
      left -= raw.size();
    }
    LH_RETURN_IF_ERROR(writer->Commit());
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
