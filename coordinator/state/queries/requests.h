// Calls with an id are carried out once (once.h): a call with the id of an earlier one gets that
// one's answer. The answer is stored in the tick that carries the call out, so after a crash either
// both are there or none.
//
// An error changes nothing and is not kept: a later call with this id is a new one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/state/commands.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/queries/request_book.h"

namespace longhaul::coordinator {

class Requests {
 public:
  explicit Requests(Ledger& ledger) : ledger_(ledger) {}
  void Load(std::vector<AnsweredCall> calls);

  // Returns whether a component has to carry out the call. If not, it was answered here, or will be
  // together with the call of this id that is under way.
  template <class Asked>
  bool Begin(const Asked& asked);
  // Writes down the answers that the tick's commands give. Call it when all components are done.
  void NoteAnswers();

  // Whether a call of this id was answered or is under way.
  bool Knows(std::string_view owner, std::string_view id) const;

 private:
  // A call that has no answer yet.
  struct Open {
    Once once;
    std::string kind;
    std::vector<RequestId> others;  // later calls with this id
  };
  template <class Asked>
  void Refuse(const Asked& asked, Status why);
  template <class Reply>
  void NoteAnswer(const command::Reply<Reply>& answer);

  Ledger& ledger_;
  RequestBook book_;
  std::map<RequestId, Open> open_;
  std::vector<Command> more_;  // answers to later calls, while the tick's commands are looked at
};

}  // namespace longhaul::coordinator
