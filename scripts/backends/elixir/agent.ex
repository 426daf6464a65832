defmodule CpLoop.Agent do
  @moduledoc """
  Handles one conversation: it asks the model and decodes its answers. It crashes on unexpected input;
  its own supervisor restarts it a few times and then gives the conversation up.
  """

  use GenServer

  alias CpLoop.{Conversation, Model, Wire}

  defmodule Watch do
    @moduledoc "The supervisor of one agent. It ends when the agent has finished or fails too often."
    use Supervisor, restart: :temporary

    def start_link(argument), do: Supervisor.start_link(__MODULE__, argument)

    # Supervisor.init/2 does not pass on all flags of :supervisor.
    @impl true
    def init(argument) do
      agent = %{id: :agent, start: {CpLoop.Agent, :start_link, [argument]}, restart: :transient, significant: true}
      {:ok, {%{strategy: :one_for_one, intensity: 3, period: 600, auto_shutdown: :any_significant}, [agent]}}
    end
  end

  def start_link(argument), do: GenServer.start_link(__MODULE__, argument)

  @doc "Asks the agent to call the model. An agent that is being restarted does so without this message."
  def ask(id), do: GenServer.cast(Conversation.noted(id, :agent), :ask)

  @impl true
  def init({id, command, desk}) do
    Process.flag(:trap_exit, true)
    Conversation.note(id, :agent, self())
    if reason = Conversation.noted(id, :reason), do: IO.puts(:stderr, "cp-loop-elixir: #{reason}; it is started again")
    {:ok, %{id: id, desk: desk, model: Model.start(command), asked: 0}, {:continue, :ask}}
  end

  @impl true
  def handle_continue(:ask, state) do
    # The previous agent may have failed after it had finished.
    if Conversation.settled?(Conversation.load(state.id)),
      do: {:stop, :normal, state},
      else: {:noreply, ask_model(state)}
  end

  @impl true
  def handle_cast(:ask, state), do: {:noreply, ask_model(state)}

  @impl true
  def handle_info(message, state) do
    case Model.take(state.model, message) do
      {:part, model} -> {:noreply, %{state | model: model}}
      {:line, line, model} -> line |> Wire.decode() |> answer(line, %{state | model: model})
      {:gone, reason} -> {:stop, {:model, reason}, state}
    end
  end

  @impl true
  def terminate(reason, state) do
    if reason not in [:normal, :shutdown], do: Conversation.note(state.id, :reason, text_of(reason))
    if Conversation.load(state.id).status == :asks, do: Model.stop(state.model), else: Model.finish(state.model)
  end

  # The cast may arrive late, so each question is sent once.
  defp ask_model(state) do
    case Conversation.load(state.id) do
      %{status: :asks, turns: turns} = conversation when length(turns) > state.asked ->
        Model.ask(state.model, Conversation.question(conversation))
        %{state | asked: length(turns)}

      _ ->
        state
    end
  end

  defp answer(%{"ok" => true, "type" => "delta"}, line, state) do
    send(state.desk, {:say, line})
    {:noreply, state}
  end

  defp answer(%{"ok" => true, "type" => "message", "data" => {message}}, line, state) do
    conversation = state.id |> Conversation.load() |> Conversation.answered(Map.new(message)) |> Conversation.save()
    send(state.desk, {:say, line})
    if conversation.status == :over, do: {:stop, :normal, state}, else: {:noreply, state}
  end

  defp answer(%{"ok" => false, "error" => {error}}, _line, state) do
    case Map.new(error) do
      # The program was stopped by a signal, so this is not an answer.
      %{"code" => "E_INTERRUPTED", "message" => message} ->
        {:stop, {:model, "#{state.model.name}: #{message}"}, state}

      error ->
        state.id |> Conversation.load() |> Map.put(:status, {:failed, error}) |> Conversation.save()
        {:stop, :normal, state}
    end
  end

  defp answer(nil, _line, state),
    do: {:stop, {:model, "#{state.model.name} answered with a line that is not a record"}, state}

  defp text_of({:model, text}), do: text
  defp text_of({reason, stack}), do: "the answer is not usable: #{Exception.format_banner(:error, reason, stack)}"
end
