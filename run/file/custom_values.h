// Values with a form of their own, for rows of Keys() (keys.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run/file/keys.h"

namespace longhaul::config {

// Check a run's name, a folder's name, a content address (SHA-256 in hex) or a replay's source.
// Return what is wrong with the text, or "" if nothing is.
std::string CheckName(std::string_view name);
std::string CheckFolder(std::string_view path);
std::string CheckStoreFolder(std::string_view address);
std::string CheckSha256(std::string_view text);
std::string CheckSource(std::string_view text);

// Return a field that reads a codec into `target`, which must outlive the field. With `or_auto`,
// and in CodecOrAuto, the word auto is also allowed. `expected` describes a right value in
// messages.
Field CodecField(std::string name, CodecSpec* target, std::string expected, bool or_auto = false);
Field CodecOrAuto(std::string name, CodecSpec* target);

Value Preset();            // model.preset
Value Tied();              // model.tied: true, false, split or auto
Value CopyEvery();         // recovery.every: a number of steps, auto or between-hosts
Value TextFiles();         // data.text: a glob or a list of globs
Value DataSets();          // data.sets: a folder, { from, weight }, or a list of such
Value Program();           // hooks.on_checkpoint: a list of a program and its arguments
Value Betas();             // train.optimizer.betas: [0.9, 0.95]
Value Targets();           // train.lora.targets: all-linear, or a list of modules
Value LinksSection();      // links: paper, or a section
Value ChosenCodecs();      // links.chosen
Value WorkerExceptions();  // links.workers
Value CodecTimes();        // replay.codec_times
Value TopologyMap();       // topology
// group.forward, group.backward (group_collective.h), and group.collective, which sets both.
Value Forward();
Value Backward();
Value BothWays();

}  // namespace longhaul::config
