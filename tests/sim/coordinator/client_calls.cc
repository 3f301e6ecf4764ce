#include "tests/sim/coordinator/client_calls.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace longhaul::coordinator::sim {
namespace {

constexpr int kMostTries = 6;

}  // namespace

void ClientCalls::Begin(const std::string& what, Make make,
                        std::function<Said(const Command&)> read,
                        std::function<void(const Command&)> told) {
  auto call = std::make_shared<Call>();
  call->what = what;
  call->id = fmt::format("request-{:016}", ++last_id_);
  call->make = std::move(make);
  call->read = std::move(read);
  call->told = std::move(told);
  Try(call);
}

void ClientCalls::Try(const std::shared_ptr<Call>& call) {
  ++call->tries;
  ask_([call](RequestId request) { return call->make(request, call->id); },
       [this, call](const Command* reply) { OnAnswer(call, reply); });
}

void ClientCalls::TryLater(const std::shared_ptr<Call>& call, absl::Duration most) {
  if (call->tries >= kMostTries) return;
  world_->timeline.After(world_->random.Between(absl::ZeroDuration(), most), [this, call] {
    if (over_) return;
    world_->timeline.Note("a user asks again: {}", call->what);
    Try(call);
  });
}

void ClientCalls::OnAnswer(const std::shared_ptr<Call>& call, const Command* reply) {
  if (reply == nullptr) return TryLater(call, absl::Seconds(5));
  const Said said = call->read(*reply);
  if (!said.status.ok()) {
    // Until it is carried out, it may be refused now and carried out by another try.
    if (call->answer) {
      world_->Violate("{} was carried out, and a repeated call was refused: {}", call->what,
                      Message(said.status));
    }
    return;
  }
  if (!call->answer) {
    call->answer = said.text;
  } else if (*call->answer != said.text || !said.repeated) {
    world_->Violate("{} was carried out twice: '{}', then '{}'", call->what, *call->answer,
                    said.text);
  }
  call->told(*reply);
  if (world_->random.Chance(0.3)) TryLater(call, absl::Seconds(60));
}

void ClientCalls::Stop(const std::string& run, bool now) {
  const auto once_of = [run, now](const std::string& id) {
    return Once{.owner = "ann", .id = id, .asked_sha256 = run + (now ? " now" : "")};
  };
  auto known = std::make_shared<std::string>();
  Begin(
      "stop " + run,
      [run, now, once_of, known](RequestId request, const std::string& id) {
        *known = id;
        return event::StopAsked{request, run, now, once_of(id)};
      },
      [](const Command& command) -> Said {
        const auto& reply = std::get<command::Reply<v1::StopReply>>(command).reply;
        if (!reply.ok()) return {.status = reply.status()};
        return {.status = {}, .text = reply->message(), .repeated = reply->stored().repeated()};
      },
      [this, once_of, known](const Command&) {
        if (world_->random.Chance(0.9)) return;
        Once once = once_of(*known);
        once.owner = "bob";
        MustBeRefused(once, "another member");
        once = once_of(*known);
        once.asked_sha256 += " another";
        MustBeRefused(once, "another request");
      });
}

void ClientCalls::MustBeRefused(const Once& once, const std::string& why) {
  ask_(
      [once](RequestId request) {
        return event::StopAsked{request, "nobody", /*now=*/true, once};
      },
      [this, why](const Command* reply) {
        if (reply == nullptr) return;
        const auto& stop = std::get<command::Reply<v1::StopReply>>(*reply);
        if (stop.reply.ok()) {
          world_->Violate("{} got the answer of a call: '{}'", why, stop.reply->message());
        }
      });
}

}  // namespace longhaul::coordinator::sim
