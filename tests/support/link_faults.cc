#include "tests/support/link_faults.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace longhaul::transport {
namespace {

using internal::Backend;
using internal::Connection;
using internal::ConnectionEvents;

class FaultyConnection;

}  // namespace

// On the loop, but for what is set before it starts.
class FaultState {
 public:
  std::shared_ptr<EventLoop> loop;
  std::vector<std::weak_ptr<FaultyConnection>> connections;
  std::map<std::string, std::string> moved;  // new address to the real one, old address to none
  bool cut = false;
  std::function<absl::Duration()> delay;
};

namespace {

class FaultyConnection : public Connection, public std::enable_shared_from_this<FaultyConnection> {
 public:
  FaultyConnection(std::shared_ptr<FaultState> state, std::shared_ptr<Connection> inner)
      : state_(std::move(state)), inner_(std::move(inner)), cut_(state_->cut) {}

  // What the inner channel calls; it keeps this channel alive until it has closed.
  class Inner : public ConnectionEvents {
   public:
    explicit Inner(std::shared_ptr<FaultyConnection> channel) : connection_(std::move(channel)) {}
    void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
      connection_->Arrive(
          {{header.begin(), header.end()}, {payload.begin(), payload.end()}, {}, {}});
    }
    void OnClosed(const Status& reason) override {
      if (!connection_->closing_) connection_->Arrive({{}, {}, reason, {}});
      connection_->inner_closed_ = true;
      connection_->SayClosed();
    }

   private:
    const std::shared_ptr<FaultyConnection> connection_;
  };
  void Start() { inner_->SetEvents(std::make_shared<Inner>(shared_from_this())); }

  void SetEvents(std::shared_ptr<ConnectionEvents> events) override { events_ = std::move(events); }

  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override {
    if (cut_ && !closing_) {
      held_.push_back({header, payload, std::move(done)});
    } else {
      SendInner({header, payload, std::move(done)});
    }
  }

  void Close() override {
    if (std::exchange(closing_, true)) return;
    Break(absl::CancelledError("closed on this side"));
  }

  std::string Describe() const override { return inner_->Describe(); }

  void Break(const Status& reason) {
    if (!broken_) broken_ = reason;
    closing_ = true;
    inbox_.clear();
    for (Held& held : std::exchange(held_, {})) {
      state_->loop->Post(
          [done = std::move(held.done)] { done(absl::CancelledError("the channel is closed")); });
    }
    // A peer behind a cut hears nothing of it.
    if (!cut_) inner_->Close();
    SayClosed();
  }

  void SetCut(bool cut) {
    cut_ = cut;
    if (cut) return;
    if (closing_) return inner_->Close();
    for (Held& held : std::exchange(held_, {})) SendInner(std::move(held));
    if (!inbox_.empty()) Deliver();
  }

  bool closing() const { return closing_; }

 private:
  struct Held {
    std::span<const std::byte> header;
    FrameView payload;
    SendDone done;
  };
  struct Arrival {
    std::vector<std::byte> header, payload;
    std::optional<Status> closed;  // the last one
    MonoTime due;
  };

  void SendInner(Held held) {
    ++under_way_;
    inner_->Send(held.header, held.payload,
                 [self = shared_from_this(), done = std::move(held.done)](const Status& status) {
                   --self->under_way_;
                   done(status);
                   self->SayClosed();
                 });
  }

  // Once this side has closed it, or it broke here, and every `done` has run.
  void SayClosed() {
    if (!closing_ || under_way_ != 0 || (!cut_ && !inner_closed_)) return;
    state_->loop->Post([self = shared_from_this()] {
      if (const auto events = std::exchange(self->events_, nullptr)) {
        events->OnClosed(*self->broken_);
      }
    });
  }

  void Arrive(Arrival arrival) {
    arrival.due = state_->loop->now();
    if (state_->delay && !closing_) arrival.due = arrival.due + state_->delay();
    if (!inbox_.empty()) arrival.due = std::max(arrival.due, inbox_.back().due);
    inbox_.push_back(std::move(arrival));
    Deliver();
  }

  // What is due; never inside a call of this channel's.
  void Deliver() {
    if (std::exchange(delivering_, true)) return;
    const MonoTime due = inbox_.empty() ? MonoTime() : inbox_.front().due;
    const auto deliver = [self = shared_from_this()] {
      self->delivering_ = false;
      self->DeliverOne();
    };
    if (due > state_->loop->now()) {
      state_->loop->AddTimer(due, deliver);
    } else {
      state_->loop->Post(deliver);
    }
  }

  void DeliverOne() {
    if (inbox_.empty() || cut_ || closing_) return;
    if (inbox_.front().due <= state_->loop->now()) {
      const Arrival arrival = std::move(inbox_.front());
      inbox_.pop_front();
      if (arrival.closed) {
        closing_ = true;
        broken_ = arrival.closed;
        SayClosed();
      } else if (const auto events = events_) {
        events->OnMessage(arrival.header, arrival.payload);
      }
    }
    if (!inbox_.empty()) Deliver();
  }

  const std::shared_ptr<FaultState> state_;
  const std::shared_ptr<Connection> inner_;
  std::shared_ptr<ConnectionEvents> events_;
  std::deque<Held> held_;
  std::deque<Arrival> inbox_;
  std::optional<Status> broken_;
  size_t under_way_ = 0;  // sends that the inner channel has
  bool cut_;
  bool closing_ = false;
  bool inner_closed_ = false;
  bool delivering_ = false;
};

class FaultyBackend : public Backend {
 public:
  FaultyBackend(std::shared_ptr<FaultState> state, std::unique_ptr<Backend> inner)
      : state_(std::move(state)), inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }

  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    state_->loop = loop;
    return inner_->Start(
        loop, [state = state_, accept = std::move(accept)](std::shared_ptr<Connection> channel) {
          accept(Wrap(state, std::move(channel)));
        });
  }

  StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) override {
    const auto moved = state_->moved.find(address);
    const std::string& real = moved == state_->moved.end() ? address : moved->second;
    if (real.empty()) return absl::UnavailableError("nobody is there any more (a test)");
    LH_ASSIGN_OR_RETURN(std::shared_ptr<Connection> channel, inner_->Connect(real));
    return Wrap(state_, std::move(channel));
  }

  std::shared_ptr<void> AdmitPeers(const std::vector<std::string>& addresses) override {
    return inner_->AdmitPeers(addresses);
  }
  void Shutdown(std::function<void()> done) override { inner_->Shutdown(std::move(done)); }

 private:
  static std::shared_ptr<Connection> Wrap(const std::shared_ptr<FaultState>& state,
                                          std::shared_ptr<Connection> inner) {
    const auto channel = std::make_shared<FaultyConnection>(state, std::move(inner));
    channel->Start();
    std::erase_if(state->connections, [](const auto& weak) { return weak.expired(); });
    state->connections.push_back(channel);
    return channel;
  }

  const std::shared_ptr<FaultState> state_;
  const std::unique_ptr<Backend> inner_;
};

// Behind what the loop has to do already; at once on a loop without a thread.
void OnLoop(const std::shared_ptr<FaultState>& state, std::function<void()> task) {
  state->loop->InLoop() ? task() : static_cast<void>(state->loop->Post(std::move(task)));
}

void ForEach(const std::shared_ptr<FaultState>& state,
             const std::function<void(FaultyConnection&)>& action) {
  for (const auto& weak : std::vector(state->connections)) {
    if (const auto channel = weak.lock()) action(*channel);
  }
}

const Status& Broken() {
  static const auto* const status = new Status(absl::UnavailableError("connection reset (a test)"));
  return *status;
}

}  // namespace

Faults::Faults() : state_(std::make_shared<FaultState>()) {}

void Faults::Reset() const {
  OnLoop(state_, [s = state_] { ForEach(s, [](FaultyConnection& c) { c.Break(Broken()); }); });
}

void Faults::ResetFirst() const {
  OnLoop(state_, [s = state_] {
    for (const auto& weak : std::vector(s->connections)) {
      const auto channel = weak.lock();
      if (channel && !channel->closing()) return channel->Break(Broken());
    }
  });
}

void Faults::Cut() const {
  OnLoop(state_, [s = state_] {
    s->cut = true;
    ForEach(s, [](FaultyConnection& c) { c.SetCut(true); });
  });
}

void Faults::CutForGood() const {
  OnLoop(state_, [s = state_] {
    ForEach(s, [](FaultyConnection& c) { c.SetCut(true); });
    std::erase_if(s->connections, [](const auto&) { return true; });
  });
}

void Faults::CutFirstForGood() const {
  OnLoop(state_, [s = state_] {
    for (const auto& weak : std::vector(s->connections)) {
      const auto channel = weak.lock();
      if (!channel || channel->closing()) continue;
      channel->SetCut(true);
      std::erase_if(s->connections, [&](const auto& c) { return c.lock() == channel; });
      return;
    }
  });
}

void Faults::Move(const std::string& from, const std::string& to) const {
  OnLoop(state_, [s = state_, from, to] {
    const std::string before = std::exchange(s->moved[from], "");
    s->moved[to] = before.empty() ? from : before;
  });
}

void Faults::Restore() const {
  OnLoop(state_, [s = state_] {
    s->cut = false;
    ForEach(s, [](FaultyConnection& c) { c.SetCut(false); });
  });
}

void Faults::SetDelay(std::function<absl::Duration()> delay) const {
  OnLoop(state_, [s = state_, delay = std::move(delay)] { s->delay = delay; });
}

std::unique_ptr<Backend> Faults::Around(std::unique_ptr<Backend> backend) const {
  return std::make_unique<FaultyBackend>(state_, std::move(backend));
}

}  // namespace longhaul::transport
