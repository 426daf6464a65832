defmodule CpLoop.Desk do
  @moduledoc """
  Reads standard input and writes standard output. Each prompt gets its own agent, each tool result
  goes to the agent that waits for it, and the records of agents are written as whole lines.
  """

  alias CpLoop.{Agent, Conversation, Wire}

  defmodule Signals do
    @moduledoc "Sends signals to the desk, instead of ending the runtime."
    @behaviour :gen_event

    @impl true
    def init({desk, _before}), do: {:ok, desk}

    @impl true
    def handle_event(signal, desk) do
      if signal in [:sigterm, :sighup], do: send(desk, :interrupted)
      {:ok, desk}
    end

    @impl true
    def handle_call(_request, desk), do: {:ok, :ok, desk}
  end

  # `watched` has the unfinished conversations, by the monitor of their supervisor.
  defstruct [:port, :command, :agents, part: [], ended: false, begun: 0, watched: %{}, failed: []]

  @doc "Runs until the input has ended and all agents have finished. Returns the exit status."
  def run(command) do
    Process.flag(:trap_exit, true)
    :ok = :os.set_signal(:sighup, :handle)
    :ok = :gen_event.swap_handler(:erl_signal_server, {:erl_signal_handler, []}, {Signals, self()})
    Conversation.init()
    {:ok, agents} = DynamicSupervisor.start_link(strategy: :one_for_one)
    loop(%__MODULE__{port: Port.open({:fd, 0, 1}, [:binary, :eof, {:line, 65_536}]), command: command, agents: agents})
  end

  defp loop(desk) do
    busy = Enum.any?(desk.watched, fn {_, id} -> Conversation.load(id).status != :waits end)
    if desk.ended and not busy, do: close(desk), else: receive_one(desk)
  end

  defp receive_one(%{port: port} = desk) do
    receive do
      {^port, {:data, {:noeol, bytes}}} -> loop(%{desk | part: [desk.part, bytes]})
      {^port, {:data, {:eol, bytes}}} -> [desk.part, bytes] |> Wire.decode() |> take(%{desk | part: []})
      {^port, :eof} when desk.part == [] -> loop(%{desk | ended: true})
      {^port, :eof} -> desk.part |> Wire.decode() |> take(%{desk | part: [], ended: true})
      # The reader has closed the output, so no error can be written.
      {:EXIT, ^port, _reason} -> stop(desk, 0)
      {:say, line} -> desk |> say([line, ?\n]) |> loop()
      {:DOWN, reference, :process, _watch, _reason} -> desk |> settle(reference) |> loop()
      :interrupted -> interrupted(desk)
      _ -> loop(desk)
    end
  end

  defp take(%{"ok" => true, "type" => "prompt", "data" => data}, desk) do
    case Conversation.begin(desk.begun, data) do
      nil -> refuse("data.messages of the prompt is empty", desk)
      conversation -> conversation |> Conversation.save() |> begin(desk) |> loop()
    end
  end

  defp take(%{"ok" => true, "type" => "tool_result", "data" => {members}}, desk) do
    %{"id" => call} = result = Map.new(members)

    # Two conversations may have calls with the same id. The older one gets the result.
    case desk.watched |> Map.values() |> Enum.sort() |> Enum.find(&(call in Conversation.load(&1).waiting)) do
      nil ->
        refuse("no call with the id #{call} waits for a result", desk)

      id ->
        id |> Conversation.load() |> Conversation.returned(result) |> Conversation.save()
        Agent.ask(id)
        loop(desk)
    end
  end

  defp take(%{"ok" => true, "type" => "summary"}, desk), do: loop(desk)
  defp take(_record, desk), do: refuse("expected a prompt or a tool_result record", desk)

  defp begin(%{id: id}, desk) do
    desk = %{desk | begun: id + 1}

    case DynamicSupervisor.start_child(desk.agents, {Agent.Watch, {id, desk.command, self()}}) do
      {:ok, watch} -> %{desk | watched: Map.put(desk.watched, Process.monitor(watch), id)}
      {:error, _reason} -> fail(desk, given_up("#{hd(desk.command)} cannot be started"))
    end
  end

  # An agent has finished or was given up.
  defp settle(desk, reference) do
    {id, watched} = Map.pop(desk.watched, reference)
    {status, reason} = {Conversation.load(id).status, Conversation.noted(id, :reason)}
    Conversation.forget(id)
    desk = %{desk | watched: watched}

    case status do
      :over -> desk
      {:failed, error} -> fail(desk, error)
      _ -> fail(desk, given_up(reason))
    end
  end

  defp given_up(reason),
    do: Wire.error("E_IO", "the model could not be asked: #{reason}", "`cp-llm doctor` looks for the cause")

  defp fail(desk, error), do: say(%{desk | failed: desk.failed ++ [error]}, Wire.failure(error))

  defp refuse(message, desk), do: refuse("E_VALIDATION", message, "cp-authors(7) says what a loop reads", desk)

  defp interrupted(desk), do: refuse("E_INTERRUPTED", "stopped by a signal", "start it again", desk)

  defp refuse(code, message, hint, desk) do
    status = stop(desk, Wire.status(code))
    say(desk, Wire.closing("error", Wire.error(code, message, hint)))
    status
  end

  defp close(desk) do
    failed = length(desk.failed)
    counts = {[total: desk.begun, succeeded: desk.begun - failed, failed: failed, skipped: 0]}
    {line, status} = closing(desk.failed, failed == desk.begun, counts)
    stop(desk, status)
    say(desk, line)
    status
  end

  # The stream fails if all its items failed.
  defp closing([%{"code" => code} = first | _], true, counts),
    do: {Wire.closing("summary", %{first | "details" => counts}), Wire.status(code)}

  defp closing(_failed, _all, counts), do: {Wire.closing(counts), 0}

  # All agents stop their programs at the same time.
  defp stop(desk, status) do
    DynamicSupervisor.stop(desk.agents, :shutdown)
    status
  end

  defp say(desk, line) do
    Port.command(desk.port, line)
    desk
  rescue
    # A closed port has sent its reason as a message.
    ArgumentError -> desk
  end
end
