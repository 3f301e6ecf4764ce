#include "coordinator/state/queries/requests.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/overloaded.h"

namespace longhaul::coordinator {
namespace {

constexpr std::string_view KindOf(const event::Submitted*) {
  return "submit";
}
constexpr std::string_view KindOf(const event::StopAsked*) {
  return "stop";
}
constexpr std::string_view KindOf(const event::ReplicasAsked*) {
  return "replicas";
}
constexpr std::string_view KindOf(const event::RemoveAsked*) {
  return "rm";
}
template <class Asked>
constexpr std::string_view KindOf() {
  return KindOf(static_cast<const Asked*>(nullptr));
}

template <class Asked>
Once OnceOf(const Asked& asked) {
  return asked.once;
}
// A submission has all that it takes in itself.
Once OnceOf(const event::Submitted& submitted) {
  if (submitted.submit.request_id().empty()) return {};
  return {.owner = submitted.by.name,
          .id = submitted.submit.request_id(),
          .asked_sha256 = Sha256WithoutId(submitted.submit)};
}

}  // namespace

void Requests::Load(std::vector<AnsweredCall> calls) {
  std::ranges::stable_sort(calls, {}, &AnsweredCall::unix_ms);
  for (AnsweredCall& call : calls) book_.Add(std::move(call), ledger_.created());
}

bool Requests::Knows(std::string_view owner, std::string_view id) const {
  return book_.Find(owner, id) != nullptr || std::ranges::any_of(open_, [&](const auto& one) {
           return one.second.once.owner == owner && one.second.once.id == id;
         });
}

template <class Asked>
void Requests::Refuse(const Asked& asked, Status why) {
  ledger_.Do(command::Reply<typename Asked::Reply>{asked.request, std::move(why)});
}

template <class Asked>
bool Requests::Begin(const Asked& asked) {
  Once once = OnceOf(asked);
  if (once.id.empty()) return true;
  const auto other = [&] {
    Refuse(asked, InvalidArgument(
                      "the request id {} belongs to another call; make a new id for each call, "
                      "and use it again only to ask again for the same",
                      once.id));
    return false;
  };
  if (const AnsweredCall* known = book_.Find(once.owner, once.id)) {
    if (known->kind != KindOf<Asked>() || known->asked_sha256 != once.asked_sha256) return other();
    typename Asked::Reply reply;
    // It was made here, or by the version that made the store.
    if (!reply.ParseFromString(known->reply)) {
      Refuse(asked, DataLoss("the answer to request {} cannot be read; see with `longhaul ps` what "
                             "became of it",
                             once.id));
      return false;
    }
    reply.mutable_stored()->set_repeated(true);
    ledger_.Do(command::Reply<typename Asked::Reply>{asked.request, std::move(reply)});
    return false;
  }
  for (auto& [request, open] : open_) {
    if (open.once.owner != once.owner || open.once.id != once.id) continue;
    if (open.kind != KindOf<Asked>() || open.once.asked_sha256 != once.asked_sha256) return other();
    open.others.push_back(asked.request);
    return false;
  }
  if (once.only_again) {
    Refuse(asked, NotFound("the answer to request {} is not kept any longer; see with `longhaul "
                           "ps` what became of it",
                           once.id));
    return false;
  }
  open_[asked.request] = {.once = std::move(once), .kind = std::string(KindOf<Asked>())};
  return true;
}

template bool Requests::Begin(const event::Submitted& asked);
template bool Requests::Begin(const event::StopAsked& asked);
template bool Requests::Begin(const event::ReplicasAsked& asked);
template bool Requests::Begin(const event::RemoveAsked& asked);

template <class Reply>
void Requests::NoteAnswer(const command::Reply<Reply>& answer) {
  const auto found = open_.find(answer.request);
  if (found == open_.end()) return;
  const Open open = std::move(found->second);
  open_.erase(found);
  for (const RequestId other : open.others) {
    command::Reply<Reply> again{other, answer.reply};
    if (again.reply.ok()) again.reply->mutable_stored()->set_repeated(true);
    more_.emplace_back(std::move(again));
  }
  if (!answer.reply.ok()) return;
  AnsweredCall call{.owner = open.once.owner,
                    .id = open.once.id,
                    .kind = open.kind,
                    .asked_sha256 = open.once.asked_sha256,
                    .reply = answer.reply->SerializeAsString(),
                    .unix_ms = ledger_.unix_ms()};
  ledger_.Write(write::Answered{call});
  for (RequestBook::Key& gone : book_.Add(std::move(call), ledger_.now())) {
    ledger_.Write(write::AnswerForgotten{std::move(gone.first), std::move(gone.second)});
  }
}

void Requests::NoteAnswers() {
  if (open_.empty()) return;
  for (const Command& command : ledger_.commands()) {
    std::visit(Overloaded{[&](const command::Reply<v1::SubmitReply>& one) { NoteAnswer(one); },
                          [&](const command::Reply<v1::StopReply>& one) { NoteAnswer(one); },
                          [&](const command::Reply<v1::ReplicasReply>& one) { NoteAnswer(one); },
                          [&](const command::Reply<v1::RemoveRunReply>& one) { NoteAnswer(one); },
                          [](const auto&) {}},
               command);
  }
  for (Command& command : std::exchange(more_, {})) ledger_.Do(std::move(command));
}

}  // namespace longhaul::coordinator
