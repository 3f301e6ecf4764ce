// Decides what a worker does with a command about a run, from what it has at hand. Pure, so that
// the daemon (agent.h) and the simulation of the coordinator decide alike.
//
// A worker has at most one piece of each kind at hand: a stage that it carries out, the next work
// that waits for the present one to end, a measurement of layers, and a probe of a link. Commands
// name their topic: run, epoch (attempt) and the assignment's stamp. A command of another
// assignment is never taken for one of the assignment at hand, even if both have the same epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// What a command is about.
struct Topic {
  std::string run;
  uint64_t epoch = 0;
  uint64_t stamp = 0;
  friend bool operator==(const Topic&, const Topic&) = default;
};
Topic TopicOf(const v1::WorkerCommand& command);
// Sets run, epoch and stamp of a report about `topic`.
void SetTopic(const Topic& topic, v1::WorkerMessage* message);

struct Desk {
  std::optional<Topic> stage;
  bool stage_leaves = false;  // the stage was told to end and has not ended yet
  std::optional<Topic> next;
  std::optional<Topic> measuring;
  std::optional<uint64_t> audit;  // number of the audit that is next or under way
  struct Probe {
    Topic topic;
    uint64_t number = 0;    // v1::ProbeLink::probe
    bool answered = false;  // the answer is kept for a repeated command
  };
  std::optional<Probe> probe;  // in progress, or the last one
};

// The pieces that a command other than Measure, ProbeLink, Audit and Assign is about.
struct Meant {
  bool stage = false;
  bool next = false;
  bool probe = false;
};
Meant WhatIsMeant(const Desk& desk, const v1::WorkerCommand& command);

// What to do with Measure, ProbeLink, Audit or Assign.
enum class NewWork : uint8_t {
  kBegin,      // end what is at hand; the command is the next work
  kUnderWay,   // nothing: the command is a repeat of work in progress, or an audit, which ends no
               // stage
  kSayReady,   // a repeated Assign: say again whether the stage is ready
  kSayProbed,  // a repeated ProbeLink: give the kept answer again
  kRefuse,     // answer with RefusalOf: the stage at hand is of a newer epoch, or of another
               // assignment with the same epoch
};
NewWork NewWorkOf(const Desk& desk, const v1::WorkerCommand& command);

// Returns the answer to an Assign that is refused. Its newest_epoch makes the coordinator begin a
// higher epoch.
v1::WorkerMessage RefusalOf(const Desk& desk, const v1::WorkerCommand& command);

}  // namespace longhaul::worker
