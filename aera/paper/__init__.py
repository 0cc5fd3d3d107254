"""The paper's gate: its 55 features and the encoders behind them, loaded only where it is used."""
