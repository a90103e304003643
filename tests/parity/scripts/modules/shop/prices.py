PRICES = {"tea": 2, "jam": 4}
