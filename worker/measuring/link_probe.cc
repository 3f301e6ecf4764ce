#include "worker/measuring/link_probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "proto/wire/link_header.h"
#include "worker/measuring/goodput_meter.h"

namespace longhaul::worker {
namespace {

using transport::Lane;
using transport::Link;

enum class Word : uint8_t { kPing, kPong, kReady, kEnough, kDry, kCount };

constexpr int kPings = 8, kFewPings = 3;
constexpr absl::Duration kPingsFor = absl::Milliseconds(200);  // then few are enough
// What is under way: half as much again as was taken within a round trip and this time, in so many
// frames. Acknowledgements come for 8 frames at a time, behind what the peer has under way, so over
// a shorter time there may be none.
constexpr absl::Duration kTakenWithin = absl::Milliseconds(200);
constexpr size_t kLeastUnderWay = size_t{32} << 10, kMostUnderWay = size_t{16} << 20;
constexpr size_t kFrames = 24, kSmallestFrame = size_t{2} << 10;
constexpr size_t kMostToSend = GoodputMeter::kMaxBytes + kMostUnderWay;
constexpr absl::Duration kOpenLimit = absl::Seconds(5);
constexpr absl::Duration kCloseLimit = absl::Seconds(1);

// What frames hold.
std::span<const std::byte> Zeros(size_t bytes) {
  static const std::vector<std::byte> zeros(transport::kMaxFramePayloadBytes);
  return std::span(zeros).first(bytes);
}

std::span<const std::byte> BytesOf(Word word) {
  static constexpr auto kWords = [] {
    std::array<std::byte, static_cast<size_t>(Word::kCount)> words{};
    for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::byte>(i);
    return words;
  }();
  return std::span(kWords).subspan(static_cast<size_t>(word), 1);
}

size_t BytesOnLink(size_t payload) {
  return payload + wire::kLinkHeaderBytes;
}

}  // namespace

// What both sides say and count. All on the transport's loop but for Wait, GiveUp and Finish.
class LinkProbe::Conversation : public transport::LinkHandler,
                                public std::enable_shared_from_this<Conversation> {
 public:
  struct Result {
    double bits_per_second = 0;
    absl::Duration round_trip;
  };

  explicit Conversation(bool round_trips_only) : round_trips_only_(round_trips_only) {}

  void Opened(StatusOr<std::shared_ptr<Link>> link) {
    if (!link.ok()) {
      Finish(link.status());
      return;
    }
    bool over = false;
    {
      const std::lock_guard lock(mutex_);
      over = over_;
      if (!over) to_close_ = *link;
    }
    if (over) {
      (*link)->Close(Deadline::After(absl::ZeroDuration()));
      return;
    }
    link_ = *std::move(link);
    for (; pings_heard_early_ > 0; --pings_heard_early_) Say(Word::kPong);
    first_ping_ = Now();
    Ping();
  }
  // The first to come counts.
  void Finish(StatusOr<Result> result) {
    const std::lock_guard lock(mutex_);
    if (!result_) result_ = std::move(result);
    changed_.notify_all();
  }
  StatusOr<Result> Wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time().ToChrono(), [this] { return result_.has_value(); });
    if (result_) return *result_;
    return absl::DeadlineExceededError("it was not measured in time");
  }
  // Ends the link, also one that opens later.
  void End() {
    std::shared_ptr<Link> link;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      link = std::move(to_close_);
    }
    if (link) link->Close(Deadline::After(kCloseLimit));
  }

  void OnFrame(Lane lane, std::span<const std::byte> payload) override {
    if (lane == Lane::kBulk) {
      if (!meter_ || enough_) return;
      meter_->Arrived(BytesOnLink(payload.size()), Now());
      if (!meter_->Done()) return;
      enough_ = true;
      Say(Word::kEnough);
      StopWhenEnough();
      return;
    }
    if (payload.size() != 1 || payload[0] >= static_cast<std::byte>(Word::kCount)) {
      Finish(InvalidArgument("expected a word of one byte, got a frame of {}", payload.size()));
      return;
    }
    Hear(static_cast<Word>(payload[0]));
  }
  void OnClosed(const Status& reason) override {
    Finish(Annotate(reason, "the link broke"));
    link_.reset();  // ends the cycle: the link holds this object
  }

 private:
  void Hear(Word word) {
    switch (word) {
      case Word::kPing:
        if (link_) {
          Say(Word::kPong);
        } else {
          ++pings_heard_early_;
        }
        return;
      case Word::kPong:
        TakePong();
        return;
      case Word::kReady:
        peer_ready_ = true;
        BeginToSend();
        return;
      case Word::kEnough:
        peer_enough_ = true;
        StopWhenEnough();
        return;
      case Word::kDry:
        peer_dry_ = true;
        SayDryWhenSo();
        return;
      case Word::kCount:
        return;
    }
  }
  void Say(Word word) {
    if (link_)
      link_->Send(Lane::kControl, {.header = {}, .body = BytesOf(word)}, [](const Status&) {});
  }
  void Ping() {
    last_ping_ = Now();
    Say(Word::kPing);
  }
  void TakePong() {
    if (ready_) return;
    const MonoTime now = Now();
    round_trip_ = std::min(round_trip_, now - last_ping_);
    ++pongs_;
    const bool long_enough = now - first_ping_ >= kPingsFor;
    if (pongs_ < (long_enough || round_trips_only_ ? kFewPings : kPings)) {
      Ping();
      return;
    }
    ready_ = true;
    meter_.emplace(round_trip_);
    Say(Word::kReady);
    BeginToSend();
  }
  void BeginToSend() {
    if (!ready_ || !peer_ready_) return;
    if (!round_trips_only_) {
      Pump();
      return;
    }
    if (!std::exchange(enough_, true)) Say(Word::kEnough);
    StopWhenEnough();
  }
  void Pump() {
    const size_t may = MayBeUnderWay();
    const size_t frame =
        std::clamp(may / kFrames, kSmallestFrame, transport::kMaxFramePayloadBytes);
    while (link_ && under_way_ + frame <= may && sent_ < kMostToSend &&
           !(enough_ && peer_enough_)) {
      under_way_ += frame;
      sent_ += frame;
      link_->Send(
          Lane::kBulk, {.header = {}, .body = Zeros(frame)},
          [self = shared_from_this(), frame](const Status& status) { self->Taken(frame, status); });
    }
  }
  size_t MayBeUnderWay() {
    const MonoTime now = Now();
    while (!taken_.empty() && (now - taken_.front().first) > round_trip_ + kTakenWithin) {
      taken_lately_ -= taken_.front().second;
      taken_.pop_front();
    }
    return std::clamp(taken_lately_ + taken_lately_ / 2, kLeastUnderWay, kMostUnderWay);
  }
  void Taken(size_t bytes, const Status& status) {
    under_way_ -= bytes;
    if (!status.ok()) return;  // OnClosed reports the reason
    taken_.emplace_back(Now(), bytes);
    taken_lately_ += bytes;
    if (enough_ && peer_enough_) {
      SayDryWhenSo();
    } else {
      Pump();
    }
  }
  void StopWhenEnough() {
    if (enough_ && peer_enough_) SayDryWhenSo();
  }
  void SayDryWhenSo() {
    if (!enough_ || !peer_enough_ || under_way_ > 0) return;
    if (!std::exchange(dry_, true)) Say(Word::kDry);
    if (!peer_dry_) return;
    Finish(Result{round_trips_only_ ? 0 : meter_->BitsPerSecond(), round_trip_});
  }

  const bool round_trips_only_;
  std::shared_ptr<Link> link_;
  int pings_heard_early_ = 0;
  MonoTime first_ping_, last_ping_;
  int pongs_ = 0;
  absl::Duration round_trip_ = absl::InfiniteDuration();
  bool ready_ = false, peer_ready_ = false;
  std::optional<GoodputMeter> meter_;
  size_t sent_ = 0, under_way_ = 0, taken_lately_ = 0;
  std::deque<std::pair<MonoTime, size_t>> taken_;
  bool enough_ = false, peer_enough_ = false, dry_ = false, peer_dry_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<StatusOr<Result>> result_;
  std::shared_ptr<Link> to_close_;
  bool over_ = false;
};

LinkProbe::LinkProbe(const v1::WorkerCommand& command)
    : command_(command),
      conversation_(std::make_shared<Conversation>(command.probe_link().round_trips_only())) {}

LinkProbe::~LinkProbe() = default;

void LinkProbe::Cancel() {
  conversation_->Finish(absl::CancelledError("the worker has other work"));
}

v1::WorkerMessage LinkProbe::Run(const transport::TransportsByName& transports) {
  const v1::ProbeLink& asked = command_.probe_link();
  v1::WorkerMessage message;
  message.set_run_id(command_.run_id());
  message.set_epoch(command_.epoch());
  message.set_stamp(command_.stamp());
  v1::LinkProbed& answer = *message.mutable_link_probed();
  answer.set_probe(asked.probe());
  const auto transport = transports.find(asked.transport());
  if (transport == transports.end()) {
    answer.set_problem(fmt::format("this worker does not listen on {}", asked.transport()));
    return message;
  }
  // No key of the run's own links, which may be opened while this one is being closed.
  const transport::LinkKey key{RunId(fmt::format("probe {}:{}", asked.probe(), command_.run_id())),
                               Stamp(command_.stamp()), EdgeId(0)};
  const absl::Duration limit = absl::Seconds(asked.limit_seconds());
  const Deadline deadline = Deadline::After(limit);
  const Deadline open_deadline = Deadline::After(std::min(limit, kOpenLimit));
  const auto opened = [conversation = conversation_](StatusOr<std::shared_ptr<Link>> link) {
    conversation->Opened(std::move(link));
  };
  const std::vector<std::string> addresses(asked.addresses().begin(), asked.addresses().end());
  std::vector<std::string> peer_at(asked.dialler_addresses().begin(),
                                   asked.dialler_addresses().end());
  if (peer_at.empty()) peer_at = addresses;  // of a relay
  const transport::LinkOptions options{.sealed = asked.sealed(), .peer_at = std::move(peer_at)};
  transport->second->Open(asked.dial(), addresses, key, asked.link_secret(), conversation_, options,
                          open_deadline, opened);
  const StatusOr<Conversation::Result> result = conversation_->Wait(deadline);
  conversation_->End();
  transport->second->Cancel(key);
  if (!result.ok()) {
    answer.set_problem(std::string(Message(result.status())));
    LogWarning("run {}: the link to {} over {} was not measured: {}", command_.run_id(),
               asked.peer_name(), asked.transport(), Message(result.status()));
    return message;
  }
  answer.set_goodput_bits_per_second(result->bits_per_second);
  answer.set_round_trip_seconds(absl::ToDoubleSeconds(result->round_trip));
  LogInfo("run {}: from {} over {}: {:.4g} Mbit/s, round trip {:.3g} ms", command_.run_id(),
          asked.peer_name(), asked.transport(), result->bits_per_second / 1e6,
          absl::ToDoubleMilliseconds(result->round_trip));
  return message;
}

}  // namespace longhaul::worker
