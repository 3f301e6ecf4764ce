#include "worker/agent/session.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/peer_log.h"
#include "base/units.h"
#include "base/watchdog.h"
#include "proto/rpc/status.h"

namespace longhaul::worker {
namespace {

// How often the session looks at the silence of its coordinator.
constexpr absl::Duration kLook = absl::Seconds(1);

}  // namespace

uint64_t MemoryUsed() {
  unsigned long pages = 0;
  unsigned long resident = 0;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                       &std::fclose);
  if (!file || std::fscanf(file.get(), "%lu %lu", &pages, &resident) != 2) return 0;
  return uint64_t{resident} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Session::Session(SessionOptions options)
    : options_(std::move(options)),
      stub_(options_.access),
      order_(options_.access->count(), options_.silence),
      terms_(options_.terms),
      thread_([this] { Loop(); }) {}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  changed_.notify_all();
  thread_.join();
}

void Session::Send(v1::WorkerMessage message) {
  {
    const std::lock_guard lock(mutex_);
    outbox_.Push(std::move(message));
  }
  changed_.notify_all();
}

void Session::AwaitSent(absl::Duration limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] {
    return closing_ || context_ == nullptr || stream_ended_ || !welcomed_ ||
           outbox_.Next() == nullptr;
  });
}

bool Session::IsConnected() const {
  const std::lock_guard lock(mutex_);
  return context_ != nullptr && welcomed_ && !stream_ended_;
}

Status Session::fatal() const {
  const std::lock_guard lock(mutex_);
  return fatal_;
}

bool Session::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(duration), [this] { return closing_; });
  return !closing_;
}

void Session::Loop() {
  WatchedLoop watched("session");
  while (true) {
    watched.Turned();
    const SessionEnding ending = Connect();
    {
      const std::lock_guard lock(mutex_);
      if (!fatal_.ok() || closing_) return;
    }
    const NextDial next = order_.After(ending);
    watched.Rests();
    if (next.pause > absl::ZeroDuration() && !Sleep(next.pause)) return;
  }
}

void Session::ReadLoop(Stream* stream, grpc::ClientContext* context) {
  v1::WorkerCommand command;
  bool noted = false;
  while (AwaitOthers([&] { return stream->Read(&command); })) {
    if (!std::exchange(noted, true)) options_.access->NoteAuthority(*context);
    if (!HandleCommand(std::move(command))) {
      // Cancelled only here: after the coordinator has ended the stream, cancelling could hide its
      // reason.
      context->TryCancel();
      break;
    }
    command.Clear();
  }
  {
    const std::lock_guard lock(mutex_);
    stream_ended_ = true;
  }
  changed_.notify_all();
}

SessionEnding Session::Connect() {
  grpc::ClientContext context;
  options_.access->Prepare(&context);
  out_of_place_.clear();
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return {};
    context_ = &context;
    stream_ended_ = false;
    moved_ = false;
    welcomed_ = false;
    rejected_ = false;
    silent_ = false;
    heard_ = Now();
    outbox_.BeginSession();
  }
  const auto stub = stub_.Get();
  const auto stream = AwaitOthers([&] { return stub->Session(&context); });
  const std::string address = stub_.address();
  // With a single coordinator the call has waited for a connection. An unreachable one of several
  // gets no hello: making it looks up names, which may take long.
  const bool reached = options_.access->alone() || !stub_.unreachable();
  v1::WorkerMessage hello;
  if (reached) {
    *hello.mutable_hello() = AwaitOthers(options_.hello);
    SayObeyed(terms_.obeyed(), hello.mutable_hello());
  }
  if (reached && AwaitOthers([&] { return stream->Write(hello); })) {
    // gRPC allows one read and one write at a time, so writing has a thread of its own.
    std::thread writer([this, &stream] { WriteLoop(stream.get()); });
    std::thread watch;
    if (!options_.access->alone()) watch = std::thread([this] { WatchSilence(); });
    ReadLoop(stream.get(), &context);
    AwaitOthers([&] { writer.join(); });
    if (watch.joinable()) watch.join();
  }
  const Status status = FromGrpc(AwaitOthers([&] { return stream->Finish(); }));
  SessionEnding ending;
  std::string news;
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
    if (closing_) return {};
    if (moved_) stub_.Drop();  // its connection has an address that is gone
    // An old coordinator that is back may refuse this worker, which belongs to its successor by
    // now. Only the coordinator that was obeyed can end the worker.
    const bool believed = obeyed_.empty() || obeyed_ == address;
    if (believed && (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status))) {
      fatal_ = Annotate(status, "coordinator " + address);
    } else if (fatal_.ok()) {
      news = NewsLocked(address, status, reached);
    }
    ending = {.welcomed = welcomed_, .serves = moved_ || rejected_};
  }
  if (!ending.serves) stub_.DoesNotServe();
  // Without the lock: a log line about a run calls Send, which takes it.
  if (!news.empty()) {
    const bool same = ending.serves || options_.access->alone();
    LogWarning("coordinator {}{}; {}", address, news,
               same ? "dialling again" : "trying " + options_.access->address());
  }
  return ending;
}

std::string Session::NewsLocked(const std::string& address, const Status& status, bool reached) {
  // gRPC words the failure of a connection differently each time.
  const std::string failure = !out_of_place_.empty() ? out_of_place_
                              : reached              ? std::string(Message(status))
                                                     : "no connection";
  std::string& last = failures_[address];
  if (!welcomed_ && last == failure) return "";
  last = failure;
  if (!out_of_place_.empty()) return " " + out_of_place_;
  if (moved_) return ": this machine has another address towards it";
  if (silent_) {
    return fmt::format(": nothing was heard from it for {}",
                       longhaul::FormatDuration(order_.SilenceLimit()));
  }
  return fmt::format(": {}", status.ok() ? "closed the session" : Message(status));
}

bool Session::Obeys(const v1::WorkerCommand& command, const std::string& address) {
  if (ObedienceTo(terms_.obeyed(), command) == Obedience::kRefuse) {
    out_of_place_ = WhyRefused(terms_.obeyed(), command);
    return false;
  }
  // Keep stores a new leader before it returns.
  const Status kept = terms_.Keep(ObeyedAfter(terms_.obeyed(), command, address), Now());
  if (kept.ok()) return true;
  out_of_place_ = fmt::format("is not obeyed: {}", Message(kept));
  return false;
}

void Session::WatchSilence() {
  std::unique_lock lock(mutex_);
  while (!closing_ && !stream_ended_) {
    const MonoTime until = heard_ + order_.SilenceLimit();
    if (Now() >= until) {
      silent_ = true;
      context_->TryCancel();
      return;
    }
    const MonoTime wake = std::min(until, Now() + kLook);
    changed_.wait_until(lock, wake.ToChrono(), [this] { return closing_ || stream_ended_; });
    // A process that stands still hears nobody.
    if (const absl::Duration late = Now() - wake; late > kLook) heard_ = heard_ + late;
  }
}

bool Session::HandleCommand(v1::WorkerCommand command) {
  const std::string address = stub_.address();
  // A refusal is a command as well: an old coordinator must not end this worker.
  if (!Obeys(command, address)) return false;
  obeyed_ = address;
  {
    const std::lock_guard lock(mutex_);
    heard_ = Now();
  }
  if (command.has_leader_beat()) return true;
  if (command.has_reject()) {
    LogAboutPeer(
        LogLevel::kError, address,
        fmt::format("coordinator {} refuses this worker: {}", address, command.reject().reason()));
    const std::lock_guard lock(mutex_);
    rejected_ = true;
    if (command.reject().fatal()) {
      fatal_ = absl::FailedPreconditionError(command.reject().reason());
    }
    return false;
  }
  if (command.has_welcome()) {
    LogInfo("connected to coordinator {} (version {})", address,
            command.welcome().coordinator_version());
    const std::lock_guard lock(mutex_);
    welcomed_ = true;
    failures_.clear();
    heartbeat_ = absl::Seconds(std::clamp(command.welcome().heartbeat_seconds(), 0.05, 60.0));
    changed_.notify_all();
    return true;
  }
  options_.on_command(std::move(command));
  return true;
}

void Session::WriteLoop(Stream* stream) {
  WatchedLoop watched("session writer");
  MonoTime next_heartbeat = Now();
  MonoTime next_look = next_heartbeat;
  std::unique_lock lock(mutex_);
  while (true) {
    if (options_.moved && Now() >= next_look) {
      next_look = Now() + heartbeat_;
      lock.unlock();
      const bool moved = AwaitOthers(options_.moved);
      lock.lock();
      if (moved && context_ != nullptr) {
        moved_ = true;
        context_->TryCancel();
        return;
      }
    }
    watched.Rests();
    changed_.wait_until(lock, next_heartbeat.ToChrono(), [this] {
      return closing_ || stream_ended_ || (welcomed_ && outbox_.Next() != nullptr);
    });
    watched.Turned();
    if (closing_ || stream_ended_) return;
    v1::WorkerMessage message;
    const bool report = welcomed_ && outbox_.Next() != nullptr;
    if (report) {
      // Stays at the front until it is written, so that a broken stream does not lose it.
      message = *outbox_.Next();
    } else if (welcomed_) {
      message.mutable_heartbeat()->set_memory_used_bytes(MemoryUsed());
    }
    next_heartbeat = Now() + heartbeat_;
    if (!report && !welcomed_) continue;
    lock.unlock();
    // Without the lock: the callback takes the agent's lock, and the agent calls Send while it
    // holds that.
    if (message.has_heartbeat() && options_.heartbeat) {
      options_.heartbeat(message.mutable_heartbeat());
    }
    const bool written = AwaitOthers([&] { return stream->Write(message); });
    lock.lock();
    if (!written) return;
    if (report) {
      outbox_.Written();
      if (outbox_.Next() == nullptr) changed_.notify_all();
    }
  }
}

}  // namespace longhaul::worker
