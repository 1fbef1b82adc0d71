// regard info: what this build is and what it runs on.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "regard/cpu.h"
#include "regard/instruction_set.h"
#include "regard/threads.h"

namespace regard::cli {
namespace {

// Names and versions of what this build was compiled against; the build writes
// the list as "Highway=1.0.3,oneDNN=2.6.3,...".
std::vector<std::pair<std::string, std::string>> dependencies() {
  std::vector<std::pair<std::string, std::string>> list;
  std::istringstream text(REGARD_DEPENDENCIES);
  for (std::string entry; std::getline(text, entry, ',');) {
    const std::size_t equals = entry.find('=');
    list.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return list;
}

std::string size_text(std::int64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

void print_text() {
  const int count = threads();  // may refuse REGARD_THREADS: before anything is printed
  std::string sets;
  for (const std::string& name : instruction_sets()) sets += (sets.empty() ? "" : ", ") + name;
  const CacheSizes caches = cache_sizes();
  fmt::print("regard            {}\n", version());
  fmt::print("cpu               {}\n", cpu_name());
  fmt::print("instruction sets  {}\n", sets);
  fmt::print("in use            {} (REGARD_CPU=NAME forces another)\n", instruction_set());
  fmt::print("threads           {} ({})\n", count, threads_backend());
  fmt::print("caches            L1 {}, L2 {}, L3 {}\n", size_text(caches.l1), size_text(caches.l2),
             size_text(caches.l3));
  std::string built_with;
  for (const auto& [name, number] : dependencies())
    built_with += fmt::format("{}{} {}", built_with.empty() ? "" : ", ", name, number);
  fmt::print("built with        {}\n", built_with);
}

void print_json() {
  const CacheSizes caches = cache_sizes();
  nlohmann::ordered_json all{
      {"version", version()},
      {"cpu", cpu_name()},
      {"instruction_sets", {{"available", instruction_sets()}, {"in_use", instruction_set()}}},
      {"threads", {{"count", threads()}, {"backend", threads_backend()}}},
      {"cache_bytes", {{"l1", caches.l1}, {"l2", caches.l2}, {"l3", caches.l3}}},
  };
  for (const auto& [name, number] : dependencies()) all["dependencies"][name] = number;
  fmt::print("{}\n", all.dump(2));
}

}  // namespace

void add_info(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("info", "Version, processor, instruction sets, threads, dependencies");
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print a JSON object");
  add_threads_option(command);
  set_example(command, "  regard info --json");
  command.callback([json] { *json ? print_json() : print_text(); });
}

}  // namespace regard::cli
